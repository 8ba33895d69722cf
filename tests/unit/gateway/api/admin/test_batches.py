"""Every team's batches over HTTP: listing, and cancelling, with the author in the audit log."""

from typing import Any

from gateway.batches.values import LineProblem, Progress
from gateway.ledger.entry import Entry
from gateway.money import format_usd
from tests.unit.gateway.api.fakes import AdminRig
from tests.unit.gateway.batches.builders import make_batch
from tests.unit.gateway.ledger.builders import make_entry, make_intent

BATCHES = "/admin/v1/batches"
FIRST = {
    "id": "batch_1",
    "status": "in_progress",
    "endpoint": "/v1/chat/completions",
    "team": "red",
    "key_id": "key-1",
    "key": "lead",
    "total": 9,
    "completed": 3,
    "failed": 1,
    "models": ["large", "small"],
    "cost_usd": "0.000000000007",
    "answers_without_price": 1,
    "created_at_us": 0,
    "deadline_us": 86_400_000_000,
    "ended_at_us": None,
    "problem": None,
}


async def make_rig() -> AdminRig:
    rig = await AdminRig().start()
    said = Progress(9, 3, 1, cost_pico_usd=7, unpriced=1, models=("large", "small"))
    ended: dict[str, Any] = {"status": "cancelled", "times_us": {"in_progress": 3, "cancelled": 5}}
    failed: dict[str, Any] = {"status": "failed", "times_us": {"failed": 6}}
    failed["problems"] = (LineProblem("invalid_url", "url must not be 'secret'.", 2),)
    rig.batches.batches = [
        make_batch(status="in_progress", progress=said),
        make_batch(id="batch_2", tenant="key key-0", key_id="key-0", **ended),
        make_batch(id="batch_3", tenant="team blue", key_id="key-gone", **failed),
    ]
    return rig


async def test_batches_are_told_with_how_far_they_are_and_who_made_them() -> None:
    rig = await make_rig()
    rows = rig.ask("finance", "GET", BATCHES).json()["batches"]
    assert rows[0] == FIRST
    assert [(one["team"], one["key"], one["ended_at_us"]) for one in rows] == [
        ("red", "lead", None),
        (None, "app", 5),
        ("blue", None, 6),
    ]
    assert [one["problem"] for one in rows] == [None, None, "invalid_url in line 2"]


async def test_those_under_way_and_those_that_have_ended_are_told_apart() -> None:
    rig = await make_rig()

    def ids(query: str) -> list[str]:
        return [one["id"] for one in rig.ask("finance", "GET", f"{BATCHES}?{query}").json()["batches"]]

    assert ids("state=under_way") == ["batch_1"]
    assert ids("state=ended") == ["batch_2", "batch_3"]
    assert ids("limit=2") == ["batch_1", "batch_2"]
    assert rig.ask("finance", "GET", f"{BATCHES}?state=x").status_code == 400


async def test_a_lead_sees_its_teams() -> None:
    rig = await make_rig()
    assert rig.ask("lead", "GET", BATCHES).json()["batches"] == [FIRST]
    assert rig.ask("lead", "POST", f"{BATCHES}/batch_1/cancel").status_code == 403
    assert not rig.batches.stopped


async def test_an_editor_cancels_one_by_name() -> None:
    rig = await make_rig()
    answer = rig.ask("editor", "POST", f"{BATCHES}/batch_1/cancel")
    assert (answer.status_code, answer.json()["status"], rig.batches.stopped) == (
        200,
        "cancelling",
        [("batch_1", "editor")],
    )
    refused = rig.ask("owner", "POST", f"{BATCHES}/batch_9/cancel")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "batch_not_found")
    assert rig.ask("finance", "POST", f"{BATCHES}/batch_1/cancel").status_code == 403


async def test_what_a_batch_came_to_in_the_ledger_is_told_and_what_has_no_price_is_not_zero() -> None:
    rig = await make_rig()

    def line(number: int, batch_id: str, **given: Any) -> Entry:
        return make_entry(number, intent=make_intent(number, batch_id=batch_id), **given)

    known, unknown = line(1, "batch_1"), line(2, "batch_2", cost=None)
    rig.entries.entries = [known, line(3, "batch_1", cost=None), unknown]
    assert known.cost is not None
    found = rig.ask("finance", "GET", f"{BATCHES}/batch_1/cost").json()
    assert (found["requests"], found["unpriced_requests"]) == (2, 1)
    assert found["cost_usd"] == format_usd(known.cost.total_pico_usd)
    assert rig.ask("finance", "GET", f"{BATCHES}/batch_2/cost").json()["cost_usd"] is None
    none = rig.ask("finance", "GET", f"{BATCHES}/batch_9/cost").json()
    assert (none["requests"], none["cost_usd"]) == (0, "0.000000000000")
