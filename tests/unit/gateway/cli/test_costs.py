"""`breakeven costs` over the demonstration's database: every form says the same sums."""

import asyncio
import contextlib
import csv
import io
import json
import shutil
import sqlite3
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gateway.cli import build
from gateway.cli.costs import cells, how_certain, how_rows_add_up, named, sentences
from gateway.cli.state import open_state
from gateway.money import format_usd, show_usd
from gateway.reports.books import empty_row
from gateway.reports.views import CostTable
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.stores import Adjustment
from tests.unit.gateway.cli.commands import run_cli

PERIOD = ("--since", "2026-10-01", "--until", "2026-12-01")


pytestmark = pytest.mark.usefixtures("month")


run = partial(run_cli, "costs", *PERIOD)


def table(*words: str) -> dict[str, Any]:
    return json.loads(run("--json", *words))


def test_groups_add_up_to_the_total() -> None:
    found = table("--by", "model,team")
    assert found["by"] == ["model", "team"]
    assert sum(row["requests"] for row in found["rows"]) == found["total"]["requests"] > 0
    assert sum(Decimal(row["cost_usd"]) for row in found["rows"]) == Decimal(found["total"]["cost_usd"])


def test_a_month_that_was_closed_is_told_as_it_was() -> None:
    before = table()
    asyncio.run(_correct(json.loads(run_cli("logs", "--limit", "1", "--json"))["request_id"]))
    assert Decimal(table()["total"]["corrections_usd"]) == Decimal("-0.000001")
    assert "Corrections, -$0.00000100 in all, are in cost $" in " ".join(run().split())
    for closed in ("2000-01-01", "2000-01-01T00:00Z"):
        assert table("--as-of", closed) == {**before, "as_of": "2000-01-01T00:00:00Z"}
    assert {**table("--as-of", "9999-01-01"), "as_of": None} == table() != before
    assert "without corrections from 2000-01-01 00:00 on" in " ".join(run("--as-of", "2000-01-01").split())
    moments = ((), ("--as-of", "2000-01-01"), ("--as-of", "9999-01-01"))
    focus = [run_cli("export", "focus", *PERIOD, *as_of) for as_of in moments]
    assert ["Adjustment" in one for one in focus] == [True, False, True]
    with pytest.raises(typer.BadParameter, match="as_of is not an ISO 8601 date"):
        CliRunner().invoke(build("costs"), ["costs", "--as-of", "x"], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("command", [["costs"], ["export", "focus"]])
def test_a_report_waits_for_no_writer(month: Path, command: list[str]) -> None:
    """It waited for a minute at most, and then failed."""
    with contextlib.closing(sqlite3.connect(month / "breakeven.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert run_cli(*command, *PERIOD, "--as-of", "2026-11-10")


async def _correct(request_id: str) -> None:
    adjustment = Adjustment(request_id, "refund", "credit-7", -(10**6), "an outage")
    async with open_state() as state:
        assert await SqlAdjustments(state.database).book([adjustment], author="test") == 1


def costing(*pico: int, by: str) -> CostTable:
    """A row for each amount, and their total."""
    rows = [empty_row().model_copy(update={"cost_usd": format_usd(one)}) for one in pico]
    whole = empty_row().model_copy(update={"cost_usd": format_usd(sum(pico))})
    return CostTable.model_validate({**table(), "by": [by], "rows": rows, "total": whole})


@pytest.mark.parametrize(
    ("pico", "by", "said"),
    [
        ((1_000_000, 2_000_000), "team", None),
        ((400_000, 400_000, 400_000), "team", "rows add up to 0.000000;"),
        ((600_000, 600_000, 600_000), "team", "rows add up to 0.000003;"),
        ((1_000_000, 2_000_000), "tag", "several tags"),
    ],
)
def test_rows_that_do_not_add_up_as_shown_say_so(pico: tuple[int, ...], by: str, said: str | None) -> None:
    found = how_rows_add_up(costing(*pico, by=by))
    assert found is None if said is None else said in (found or "")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"cost_lower_usd": "1", "cost_upper_usd": "3"}, "it was at least $1.00 and at most $3.00."),
        ({"cost_upper_usd": None}, "; some of them have no upper bound."),
        (
            {"cost_lower_usd": "1", "cost_upper_usd": "3", "corrections_usd": "-1"},
            "$3.00, corrections of -$1.00 left out.",
        ),
    ],
)
def test_a_total_that_is_not_exact_says_between_what_it_lies(changed: dict[str, Any], said: str | None) -> None:
    found = how_certain(empty_row().model_copy(update=changed))
    assert found is None if said is None else said in (found or "")


@pytest.mark.parametrize(
    ("saved", "said"),
    [("12.5", "$12.50 less than without."), ("-2.5", "$2.50 more than without: more was written"), ("0", None)],
)
def test_what_providers_caches_saved_is_told(saved: str, said: str | None) -> None:
    found = costing(10**12, by="model").model_copy(update={"saved_by_prompt_caches_usd": saved})
    told = [one for one in sentences(found) if one.startswith("Prompt caches")]
    assert said in told[0] if said else told == []


@pytest.mark.parametrize("unpriced", [0, 1])
def test_a_price_of_tokens_that_is_partly_a_guess_is_told(unpriced: int) -> None:
    """A model whose longest requests had a price beside short ones without showed more than its list price."""
    found = costing(10**12, by="model")
    found = found.model_copy(update={"total": found.total.model_copy(update={"unpriced_requests": unpriced})})
    assert any("$/M takes all of them for equally long" in one for one in sentences(found)) == bool(unpriced)


def test_what_the_gateway_asked_for_itself_is_told_apart() -> None:
    found = costing(10**12, by="model").model_copy(update={"shadow_usd": "0.5", "judge_usd": "0.25"})
    told = [one for one in sentences(found) if "included above" in one]
    assert told == ["Shadow calls, included above: $0.500.", "Judging their answers, included above: $0.250."]


def test_simulated_spend_is_told_in_dollars() -> None:
    total = table()["total"]
    assert total["simulated_requests"] == total["requests"], "the demonstration's own engine is made up too"
    assert total["simulated_usd"] == total["cost_usd"]
    said = (
        f"{total['requests']} simulated, of which {show_usd(total['simulated_usd'])} is at list prices and on no bill"
    )
    assert said in " ".join(run().split())


def test_csv_says_what_json_says() -> None:
    rows = list(csv.DictReader(io.StringIO(run("--csv", "--by", "model"))))
    expected = table("--by", "model")["rows"]
    assert [row["model"] for row in rows] == [row["group"]["model"] or "" for row in expected]
    assert [Decimal(row["cost_usd"]) for row in rows] == [Decimal(row["cost_usd"]) for row in expected]


def test_no_name_becomes_a_formula(monkeypatch: pytest.MonkeyPatch, month: Path, tmp_path: Path) -> None:
    """A team can have any name; opening the file must not run it."""
    shutil.copytree(month, tmp_path / "named")
    with contextlib.closing(sqlite3.connect(tmp_path / "named" / "breakeven.db")) as database, database:
        database.execute("update dimensions set team = '=1+1' where team = 'support'")
    monkeypatch.setenv("BREAKEVEN_HOME", str(tmp_path / "named"))
    rows = list(csv.DictReader(io.StringIO(run("--csv", "--by", "team"))))
    assert "'=1+1" in [row["team"] for row in rows]
    assert not [cell for row in rows for cell in row.values() if cell.startswith(("=", "+", "@"))]


def test_idle_rent_is_told_beside_the_total_that_leaves_it_out() -> None:
    idle = table()["idle"]
    assert Decimal(idle["rent_usd"]) == Decimal(idle["used_usd"]) + Decimal(idle["idle_usd"])
    said = " ".join(run().split())
    whole = show_usd(Decimal(table()["total"]["cost_usd"]) + Decimal(idle["idle_usd"]))
    assert f"{show_usd(idle['rent_usd'])} of rent, {show_usd(idle['idle_usd'])} of it idle" in said
    assert f"with that the period cost {whole}." in said
    assert "idle" not in run("--where", "team=support")


def test_the_table_names_every_group() -> None:
    drawn = run("--by", "day")
    assert all(row["group"]["day"] in drawn for row in table("--by", "day")["rows"])


def test_keys_are_called_by_their_names_and_keep_their_ids() -> None:
    found = table("--by", "key")
    names: dict[str, str] = found["key_names"]
    ids = [row["group"]["key"] for row in found["rows"]]
    assert {"support-bot", "nightly-cron"} <= set(names.values())
    drawn = run("--by", "day,key")
    assert all(name in drawn for name in names.values())
    assert not any(number in drawn for number in names)
    rows = list(csv.DictReader(io.StringIO(run("--csv", "--by", "key,model"))))
    assert next(iter(rows[0])) == "key"
    assert {row["key"]: row["key_name"] for row in rows} == {number: names.get(number, "") for number in ids}
    assert not table("--by", "team")["key_names"]


def test_two_keys_of_one_name_are_told_apart() -> None:
    found = CostTable.model_validate({**table(), "key_names": {"key_1": "chat", "key_2": "chat", "key_3": "batch"}})
    assert [named(found, "key", number) for number in ("key_1", "key_3", "key_4", "", None)] == [
        "chat (key_1)", "batch", "key_4", "(none)", "(none)",
    ]  # fmt: skip
    assert [named(found, "team", team) for team in ("key_1", "none")] == ["key_1", "none"]


def test_an_unknown_dimension_is_refused() -> None:
    result = CliRunner().invoke(build("costs"), ["costs", "--by", "colour"])
    assert result.exit_code == 2
    assert "one to three different names" in result.output


def test_days_and_months_are_those_of_the_time_zone_asked_for() -> None:
    """Berlin's October ends at 23:00 UTC, and its 25 October had 25 hours."""
    by_hour = table("--by", "hour")["rows"]
    october = [row for row in by_hour if "2026-09-30T22" <= row["group"]["hour"] < "2026-10-31T23"]
    months = {row["group"]["month"]: row for row in table("--by", "month", "--time-zone", "Europe/Berlin")["rows"]}
    assert Decimal(months["2026-10"]["cost_usd"]) == sum(Decimal(row["cost_usd"]) for row in october) > 0
    assert sum(row["requests"] for row in months.values()) == sum(row["requests"] for row in by_hour)


def test_bounds_without_a_zone_are_of_the_time_zone_asked_for() -> None:
    words = ("--from", "2026-10-25", "--to", "2026-10-26", "--time-zone", "Europe/Berlin", "--json")
    result = CliRunner().invoke(build("costs"), ["costs", *words], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert (found["since"], found["until"]) == ("2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z")
    words = ("--from", "2026-10-25T00:00Z", "--to", "2026-10-26", "--time-zone", "Asia/Kolkata")
    found = json.loads(CliRunner().invoke(build("costs"), ["costs", *words, "--json"]).stdout)
    assert (found["since"], found["until"]) == ("2026-10-25T00:00:00Z", "2026-10-25T18:30:00Z")
    drawn = CliRunner().invoke(build("costs"), ["costs", *words]).stdout
    assert "2026-10-25 05:30 to 2026-10-26 00:00 Asia/Kolkata" in drawn


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--time-zone", "Mars/Base"), "is not a time zone; use a name such as Europe/Berlin"),
        (("--since", "yesterday"), "since is not an ISO 8601 date"),
        (("--by", "colour"), "by takes one to three different names"),
    ],
)
def test_what_means_nothing_is_said_without_jargon(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(build("costs"), ["costs", *words], catch_exceptions=False)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())
    assert "Value error" not in result.output


def test_a_group_without_any_known_price_does_not_cost_nothing() -> None:
    unknown = empty_row().model_copy(update={"requests": 2, "unpriced_requests": 2})
    assert cells(unknown)[1] == "unknown"
    assert cells(unknown.model_copy(update={"cost_usd": "1.500000"}))[1] == "1.500000"
    assert cells(unknown.model_copy(update={"unpriced_requests": 1}))[1] == "0.000000"
