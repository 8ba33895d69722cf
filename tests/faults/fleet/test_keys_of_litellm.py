"""LiteLLM's keys at a real fleet: each app's secret keeps working at every worker, unchanged and with its limits."""

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import build
from gateway.errors import StateError
from tests.faults.fleet.caller import chat_afresh, chat_with_every_worker, until_known
from tests.faults.fleet.two_replicas import WORKERS, Fleet
from tests.litellm_database import LiteLLMDatabase
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.timeout(600)]


class Move:
    """A move from LiteLLM to one of our fleets that is already running."""

    def __init__(self, fleet: Fleet, theirs: LiteLLMDatabase, patch: pytest.MonkeyPatch) -> None:
        self.fleet, self.theirs = fleet, theirs
        for name in ("BREAKEVEN_HOME", "BREAKEVEN_DATABASE_URL", "BREAKEVEN_REDIS_URL", "BREAKEVEN_PEPPER"):
            patch.setenv(name, fleet.one.environment[name])

    def run(self, *words: str) -> Any:
        result = CliRunner().invoke(build("keys"), ["keys", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if "--json" in words else result.stdout

    def take_over(self, *words: str) -> Any:
        return self.run("import-litellm", "--database", self.theirs.url, "--json", *words)

    async def statuses(self, secret: str) -> list[int]:
        return [got.status for got in await chat_with_every_worker(self.fleet.urls, secret)]


@pytest.fixture(scope="module")
def moving(running_fleet: Fleet, postgres_directory: str) -> Iterator[Move]:
    theirs = LiteLLMDatabase(postgres_directory)
    asyncio.run(theirs.make())
    with pytest.MonkeyPatch.context() as patch:
        yield Move(running_fleet, theirs, patch)
    asyncio.run(theirs.remove())


@pytest.fixture
def move(moving: Move, fleet: Fleet) -> Move:
    """A move while both replicas are up."""
    assert moving.fleet is fleet
    return moving


def test_a_secret_made_at_litellm_answers_at_every_worker_until_it_is_revoked(move: Move) -> None:
    secret = "sk-1234567890abcdefghijkl"
    asyncio.run(
        move.theirs.add("LiteLLM_TeamTable", team_id="t-1", team_alias="blue", max_budget=50.0, budget_duration="30d")
    )
    asyncio.run(move.theirs.add_key(secret, key_alias="shop", team_id="t-1", models=[], metadata={"tags": ["nightly"]}))
    assert asyncio.run(move.statuses(secret)) == [401] * WORKERS
    [tried] = move.take_over("--dry-run")["keys"]
    assert tried["state"] == "would be made"
    assert asyncio.run(move.statuses(secret)) == [401] * WORKERS, "it was only tried"
    told = move.take_over()
    [made] = told["keys"]
    assert (made["name"], made["team"], made["tags"]) == ("shop", "blue", ["nightly"])
    assert asyncio.run(move.statuses(secret)) == [200] * WORKERS, "at once"
    [budget] = [one for one in move.fleet.admin("GET", "/budgets")["budgets"] if one["name"] == "blue"]
    assert (budget["scope"], budget["name"], float(budget["month_usd"]), budget["stops"]) == (
        "team",
        "blue",
        50.0,
        True,
    )
    again = move.take_over()
    key_id = made["state"].removeprefix("made: ")
    assert [one["state"] for one in again["keys"]] == [f"is here: {key_id}"]
    assert [one["state"] for one in again["budgets"]] == ["is here, and stays as it is"]
    listed = [one for one in move.run("list", "--json") if one["name"] == "shop"]
    assert [(one["id"], one["secret"]) for one in listed] == [(key_id, "LiteLLM's")]

    move.run("revoke", key_id)
    wait_until(lambda: asyncio.run(move.statuses(secret)) == [401] * WORKERS, "it is not refused at every worker")
    assert [one["state"] for one in move.take_over()["keys"]] == [f"is here: {key_id}, revoked here"]
    assert asyncio.run(move.statuses(secret)) == [401] * WORKERS


def test_its_limits_are_in_force_over_all_workers(move: Move) -> None:
    secret, poor, other = "sk-limited", "sk-without-money", "sk-of-another-model"
    asyncio.run(move.theirs.add_key(secret, key_alias="limited", rpm_limit=3, models=["plain"]))
    asyncio.run(move.theirs.add_key(poor, key_alias="poor", max_budget=2.5, spend=2.5))
    asyncio.run(move.theirs.add_key(other, key_alias="other", models=["nothing-here"]))
    move.take_over()
    got = [one.status for one in asyncio.run(chat_afresh(move.fleet.urls, secret, 4))]
    assert (got.count(200), got.count(429)) == (3, 5), "of all workers together"
    [refused] = asyncio.run(chat_afresh([move.fleet.one.url], poor, 1))
    assert (refused.status, json.loads(refused.body)["error"]["type"]) == (429, "insufficient_quota")
    [refused] = asyncio.run(chat_afresh([move.fleet.two.url], other, 1, model="plain"))
    assert refused.status in (403, 404), refused
    assert asyncio.run(move.statuses("sk-nobodys")) == [401] * WORKERS


def test_what_litellm_counts_of_the_running_month_counts_here_and_is_in_no_report(move: Move) -> None:
    """At every worker, also at one that starts later; a second import replaces the figure with the newer one."""
    at = datetime.now(UTC)
    reset = datetime(at.year + at.month // 12, at.month % 12 + 1, 1)  # noqa: DTZ001 (as LiteLLM's columns are)
    month: dict[str, Any] = {"max_budget": 10.0, "budget_duration": "30d", "budget_reset_at": reset}
    asyncio.run(move.theirs.add_key("sk-half", key_alias="half", spend=4.25, **month))
    asyncio.run(move.theirs.add_key("sk-spent", key_alias="spent", spend=10.0, **month))
    taken = {one["name"]: one["counts_here_usd"] for one in move.take_over()["keys"]}
    assert (taken["half"], taken["spent"]) == ("4.25", "10")

    def refused(secret: str) -> bool:
        return asyncio.run(move.statuses(secret)) == [429] * WORKERS

    def shown() -> dict[str, float]:
        rows = move.fleet.admin("GET", "/budgets/keys")["keys"]
        return {one["name"]: float(one["taken_over_usd"]) for one in rows if one["name"] in ("half", "spent")}

    assert refused("sk-spent")
    assert asyncio.run(move.statuses("sk-half")) == [200] * WORKERS
    assert shown() == {"half": 4.25, "spent": 10.0}
    asyncio.run(move.theirs.change_key("sk-half", "spend", 9.9999999999))
    for _ in range(2):
        move.take_over()
    assert shown()["half"] == 9.9999999999
    wait_until(lambda: refused("sk-half"), "the newer figure is not in force at every worker")
    [half] = [one for one in move.run("list", "--json") if one["name"] == "half"]
    assert (half["taken_over_from"], half["taken_over_usd"]) == ("LiteLLM", "9.9999999999")
    rows = {one["group"]["key"]: one for one in move.fleet.admin("GET", "/reports/costs?by=key")["rows"]}
    assert float(rows[half["id"]]["cost_usd"]) < 0.01
    victim = move.fleet.two.worker_processes()[0]
    victim.kill()
    victim.wait(PATIENCE_SECONDS)
    asyncio.run(until_known(move.fleet.urls, "sk-half"))  # the new worker listens
    assert refused("sk-half")


def test_a_rotation_ends_the_secret_of_litellms(move: Move) -> None:
    secret = "sk-to-be-rotated"
    asyncio.run(move.theirs.add_key(secret, key_alias="rotated"))
    move.take_over()
    new = move.run("rotate", "rotated", "--overlap", "1h", "--json")["key"]
    assert asyncio.run(move.statuses(new)) == [200] * WORKERS
    assert asyncio.run(move.statuses(secret)) == [200] * WORKERS
    move.run("end-overlap", "rotated")
    wait_until(lambda: asyncio.run(move.statuses(secret)) == [401] * WORKERS, "the old secret still works")
    assert asyncio.run(move.statuses(new)) == [200] * WORKERS
    move.take_over()
    assert asyncio.run(move.statuses(secret)) == [401] * WORKERS


def test_what_is_left_is_said_in_words(move: Move) -> None:
    asyncio.run(move.theirs.add_key("sk-blocked", key_alias="stopped", blocked=True))
    said = move.run("import-litellm", "--database", move.theirs.url, "--dry-run")
    assert "stopped: it is blocked there" in said
    assert "keys would be made" in said
    with pytest.raises(StateError, match=r"no table LiteLLM_VerificationToken in its schema 'public'"):
        move.run("import-litellm", "--database", move.theirs.url.replace("schema=litellm", "schema=public"))
