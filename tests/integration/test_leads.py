"""Two teams in one gateway: a lead sees its own team's spending, and nothing of the other's, whatever it requests."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gateway.api.admin.guard import OF_TEAM
from gateway.api.assemble import build_app
from gateway.composition.deployment import load_deployment
from gateway.composition.wiring import open_gateway
from gateway.storage.sql.ledger import SqlLedger
from gateway.stores import Budget, NewKey
from tests.homes import new_home
from tests.unit.gateway.batches.builders import make_batch
from tests.unit.gateway.ledger.builders import make_entry, make_intent, request_id

pytestmark = pytest.mark.integration
TEAMS = ("red", "blue")
SINCE = "since=2026-01-01&until=2026-01-02"


def secret_words(team: str) -> tuple[str, ...]:
    """Words that occur in everything of one team, and in nothing of another."""
    return tuple(f"{team}-{what}" for what in ("team", "project", "tag", "key", "lead"))


@dataclass(frozen=True, slots=True)
class TwoTeams:
    """`keys` are the secrets of each team's lead and of an owner. Each team has made one request."""

    client: httpx.AsyncClient
    keys: Mapping[str, str]
    requests: Mapping[str, str]

    async def ask(self, whose: str, path: str) -> httpx.Response:
        return await self.client.get(path, headers={"authorization": f"Bearer {self.keys[whose]}"})


@pytest.fixture
async def two_teams(tmp_path: Path) -> AsyncGenerator[TwoTeams]:
    home = new_home(tmp_path / "home")
    gateway = await open_gateway(load_deployment(home, environ={}))
    await gateway.start()
    try:
        stores, keys = gateway.stores, {}
        for number, team in enumerate(TEAMS):
            name, project, tag, key, lead = secret_words(team)
            used, _ = await stores.keys.create(NewKey(key, team=name, project=project, tags=(tag,)), author="test")
            intent = make_intent(number, key_id=used.record.id, team=name, project=project, tags=(tag,))
            await SqlLedger(gateway.database).insert([make_entry(number, intent=intent)])
            _, keys[team] = await stores.keys.create(NewKey(lead, role="lead", team=name), author="test")
            await stores.budgets.set(Budget("team", name, 10**12, "test", 0))
            batch = make_batch(id=f"batch_{name}", tenant=f"team {name}", key_id=used.record.id, status="completed")
            await stores.batches.create(batch)
            await stores.budgets.set(Budget("project", project, 10**12, "test", 0))
        _, keys["owner"] = await stores.keys.create(NewKey("all", role="owner"), author="test")
        await gateway.refresh()
        transport = httpx.ASGITransport(build_app(gateway))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            yield TwoTeams(client, keys, {team: request_id(number) for number, team in enumerate(TEAMS)})
    finally:
        await gateway.stop()


async def open_paths(teams: TwoTeams) -> dict[str, list[str]]:
    """The paths open to leads according to the OpenAPI document, with the names of their parameters."""
    document = (await teams.client.get("/openapi.json")).json()
    asked = {path: item["get"] for path, item in document["paths"].items() if item.get("get", {}).get(OF_TEAM)}
    return {path: [one["name"] for one in get.get("parameters", ())] for path, get in asked.items()}


def questions(path: str, teams: TwoTeams) -> list[str]:
    """The path as it is, and with parameters that could widen its scope."""
    if "{request_id}" in path:
        return [path.replace("{request_id}", number) for number in teams.requests.values()]
    if path.endswith("/costs"):
        wider = ("by=team,key", "by=project,tag", "by=model", "team=blue-team", "project=blue-project&by=project")
        return [f"{path}?{SINCE}&{one}" for one in wider]
    if path.endswith("/entries"):
        return [f"{path}?{SINCE}{wider}" for wider in ("", "&order=cost", "&team=blue-team", "&tag=blue-tag")]
    return [path]


async def test_a_lead_is_told_of_its_own_team_alone(two_teams: TwoTeams) -> None:
    told = dict.fromkeys((*TEAMS, "owner"), "")
    paths = await open_paths(two_teams)
    assert len(paths) >= 8
    for question in [one for path in paths for one in questions(path, two_teams)]:
        for whose in told:
            answer = await two_teams.ask(whose, question)
            assert answer.status_code in (200, 400, 403, 404), (whose, question)
            told[whose] += answer.text if answer.status_code == 200 else ""
    for team, other in (TEAMS, TEAMS[::-1]):
        assert not [word for word in secret_words(other) if word in told[team]]
        assert two_teams.requests[other] not in told[team]
        mine = [word for word in secret_words(team) if word in told[team]]
        assert mine == list(secret_words(team)), "it is told of its own"
    assert all(word in told["owner"] for team in TEAMS for word in secret_words(team))


async def test_the_figures_are_those_of_the_team(two_teams: TwoTeams) -> None:
    costs = (await two_teams.ask("red", f"/admin/v1/reports/costs?{SINCE}&by=team")).json()
    assert [row["group"] for row in costs["rows"]] == [{"team": "red-team"}]
    assert costs["total"]["requests"] == 1
    budgets = (await two_teams.ask("red", "/admin/v1/budgets")).json()["budgets"]
    assert [(one["scope"], one["name"]) for one in budgets] == [("team", "red-team")]


async def test_the_batches_are_those_of_the_team(two_teams: TwoTeams) -> None:
    for whose, ids in (("red", ["batch_red-team"]), ("owner", ["batch_blue-team", "batch_red-team"])):
        found = (await two_teams.ask(whose, "/admin/v1/batches")).json()["batches"]
        assert sorted(one["id"] for one in found) == ids


async def test_another_teams_request_looks_like_none_and_its_name_is_refused(two_teams: TwoTeams) -> None:
    other = await two_teams.ask("red", f"/admin/v1/entries/{two_teams.requests['blue']}")
    never = await two_teams.ask("red", f"/admin/v1/entries/{'f' * 32}")
    assert other.status_code == never.status_code == 404
    assert other.text.replace(two_teams.requests["blue"], "").count("blue") == 0
    named = [path for path, parameters in (await open_paths(two_teams)).items() if "team" in parameters]
    assert len(named) >= 5
    for path in named:
        refused = await two_teams.ask("red", f"{path}?team=blue-team")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "other_team"), path


async def test_a_lead_calls_no_model_and_changes_nothing(two_teams: TwoTeams) -> None:
    headers = {"authorization": f"Bearer {two_teams.keys['red']}"}
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]}
    for path, sent in (("/v1/chat/completions", body), ("/admin/v1/keys", {"name": "x"})):
        refused = await two_teams.client.post(path, headers=headers, json=sent)
        assert refused.status_code == 403, path
