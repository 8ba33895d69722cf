"""Monthly budgets over HTTP: set, listed with what is spent of them, removed."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.access.keys import KeyRecord
from gateway.notices.key_budgets import KeySpent
from gateway.stores import Budget, NewKey
from tests.unit.gateway.api.fakes import ROLES, AdminRig

BUDGETS = "/admin/v1/budgets"


async def test_a_budget_is_set_replaced_and_removed() -> None:
    rig = await AdminRig().start()
    rig.ask("finance", "PUT", BUDGETS, scope="team", name="red", month_usd="40")
    row = rig.ask("finance", "PUT", BUDGETS, scope="team", name="red", month_usd="50").json()
    assert (row["month_usd"], row["spent_usd"], row["spent_share"]) == ("50.000000000000", "25.000000000000", 0.5)
    assert (row["set_by"], row["outlook"], float(row["taken_over_usd"])) == ("finance", None, 0)
    assert rig.ask("viewer", "GET", BUDGETS).json()["budgets"] == [row]
    removed = rig.ask("finance", "DELETE", f"{BUDGETS}?scope=team&name=red").json()
    assert removed == {"scope": "team", "name": "red"}
    assert rig.ask("viewer", "GET", BUDGETS).json()["budgets"] == []
    assert rig.ask("finance", "DELETE", f"{BUDGETS}?scope=team&name=red").status_code == 404


async def test_a_budget_warns_unless_it_is_said_to_stop() -> None:
    rig = await AdminRig().start()
    rig.ask("finance", "PUT", BUDGETS, scope="team", name="red", month_usd="40")
    rig.ask("finance", "PUT", BUDGETS, scope="all", month_usd="90", stops=True)
    rows = rig.ask("viewer", "GET", BUDGETS).json()["budgets"]
    assert {row["scope"]: row["stops"] for row in rows} == {"team": False, "all": True}
    of_all = rig.ask("viewer", "GET", f"{BUDGETS}?scope=all").json()["budgets"]
    assert [row["scope"] for row in of_all] == ["all"]


async def test_a_budget_says_how_many_keys_it_counts_so_that_a_name_misspelt_is_seen() -> None:
    rig = await AdminRig().start()
    for name, team, project in (("one", "red", None), ("two", "red", "search"), ("over", "red", "search")):
        expires = 1 if name == "over" else None
        new = NewKey(name=name, role="app", team=team, project=project, expires_at_us=expires)
        await rig.keys.create(new, author="x")
    gone, _ = await rig.keys.create(NewKey(name="gone", role="app", team="red"), author="x")
    await rig.keys.revoke(gone.record.id, author="x")
    counted: dict[tuple[str, str], int] = {}
    for scope, name in (("team", "red"), ("project", "search"), ("team", "rde"), ("all", "")):
        row = rig.ask("finance", "PUT", BUDGETS, scope=scope, name=name, month_usd="40", stops=True).json()
        counted[scope, name] = row["keys"]
    assert counted == {("team", "red"): 3, ("project", "search"): 1, ("team", "rde"): 0, ("all", ""): len(ROLES) + 2}
    listed = rig.ask("viewer", "GET", BUDGETS).json()["budgets"]
    assert {(one["scope"], one["name"]): one["keys"] for one in listed} == counted


@pytest.mark.parametrize(
    "body",
    [
        {"scope": "team", "month_usd": "1"},
        {"scope": "all", "name": "red", "month_usd": "1"},
        {"scope": "all", "month_usd": "0"},
        {"scope": "all", "month_usd": "a lot"},
        {"scope": "all", "month_usd": "9000000.01"},
        {"scope": "key", "name": "x", "month_usd": "1"},
    ],
)
async def test_a_budget_that_means_nothing_is_refused(body: dict[str, Any]) -> None:
    rig = await AdminRig().start()
    assert rig.ask("finance", "PUT", BUDGETS, **body).status_code == 400
    assert rig.ask("viewer", "GET", BUDGETS).json()["budgets"] == []


async def test_a_refusal_says_what_is_wrong_in_plain_words() -> None:
    rig = await AdminRig().start()
    refused = rig.ask("finance", "PUT", BUDGETS, scope="all", month_usd="a lot").json()["error"]
    assert refused["message"] == "month_usd: is not an amount of dollars such as 2500 or 2500.50."
    refused = rig.ask("finance", "PUT", BUDGETS, scope="key", name="x", month_usd="1").json()["error"]
    assert refused["message"].startswith("scope: must be ")


async def test_the_budgets_of_keys_are_told_with_what_admission_counts() -> None:
    rig = await AdminRig().start()

    def spent(name: str, team: str | None, usd: int) -> KeySpent:
        return KeySpent(KeyRecord(f"id-{name}", name, "app", team), "month", 10 * 10**12, usd * 10**12)

    much = replace(spent("much", "blue", 9), opening_pico_usd=4 * 10**12)
    rig.spent_by_key = [spent("little", "red", 1), much, spent("some", None, 5)]
    found = rig.ask("owner", "GET", f"{BUDGETS}/keys?limit=2").json()
    assert [one["name"] for one in found["keys"]] == ["much", "some"]
    assert found["with_budget"] == 3
    assert found["keys"][0]["spent_usd"] == "9.000000000000"
    assert [float(one["taken_over_usd"]) for one in found["keys"]] == [4, 0]
    assert found["keys"][0]["spent_share"] == 0.9
    assert [one["name"] for one in rig.ask("lead", "GET", f"{BUDGETS}/keys").json()["keys"]] == ["little"]


async def test_a_budget_of_nothing_is_all_spent() -> None:
    """Budgets of 0 come only from LiteLLM: here none can be set by hand."""
    rig = await AdminRig().start()
    await rig.budgets.set(Budget("team", "red", 0, "cli", 1, stops=True))
    [row] = rig.ask("viewer", "GET", BUDGETS).json()["budgets"]
    assert (row["month_usd"], row["spent_share"]) == ("0.000000000000", 1.0)
