"""Single requests over HTTP: exact cost lines, and nobody sees another key's request."""

from decimal import Decimal

import msgspec
import pytest

from gateway.ledger.entry import Cost, Entry
from gateway.stores import Adjustment, AdjustmentKind, Correction
from tests.unit.gateway.api.fakes import ROLES, AdminRig, make_entry
from tests.unit.gateway.api.memory_stores import NOW_US


async def rig_with(*entries: Entry) -> AdminRig:
    rig = await AdminRig().start()
    rig.entries.entries.extend(entries)
    return rig


async def test_the_price_lines_add_up_to_the_cost_exactly() -> None:
    rig = await rig_with(make_entry())
    found = rig.ask("finance", "GET", f"/admin/v1/entries/{'0' * 32}").json()
    assert sum(Decimal(line["cost_usd"]) for line in found["lines"]) == Decimal(found["cost_usd"])
    assert {line["name"]: line["tokens"] for line in found["lines"]} == {
        "input, not cached": 50,
        "input, read from cache": 40,
        "input, written to cache": 10,
        "output, reasoning included": 20,
    }


async def test_the_latency_is_split_without_gap_or_overlap() -> None:
    rig = await rig_with(make_entry())
    found = rig.ask("finance", "GET", f"/admin/v1/entries/{'0' * 32}").json()
    parts = found["queue_seconds"] + found["prefill_seconds"] + found["decode_seconds"]
    assert parts == pytest.approx(found["total_seconds"])


async def test_an_unknown_price_is_null_and_never_zero() -> None:
    rig = await rig_with(msgspec.structs.replace(make_entry(), cost=None))
    found = rig.ask("finance", "GET", f"/admin/v1/entries/{'0' * 32}").json()
    assert found["cost_usd"] is None
    assert found["lines"] == []


def correction(number: int, pico_usd: int, kind: AdjustmentKind = "reprice") -> Correction:
    return Correction(NOW_US + number, Adjustment("0" * 32, kind, f"version {number}", pico_usd, "a reason"))


@pytest.mark.parametrize(
    ("cost", "amounts", "expected"),
    [
        (Cost(input_pico_usd=50), (), "0.000000000050"),
        (Cost(input_pico_usd=50), (30, -20), "0.000000000060"),
        (None, (), None),
        (None, (30, -5), "0.000000000025"),
        (None, (30, -30), "0.000000000000"),
    ],
)
async def test_corrections_stand_beside_what_was_booked(
    cost: Cost | None, amounts: tuple[int, ...], expected: str | None
) -> None:
    rig = await rig_with(msgspec.structs.replace(make_entry(), cost=cost), make_entry("1" * 32))
    rig.entries.booked += [correction(number, amount) for number, amount in enumerate(amounts)]
    found = rig.ask("finance", "GET", f"/admin/v1/entries/{'0' * 32}").json()
    assert found["cost_usd"] == (None if cost is None else "0.000000000050")
    assert [Decimal(one["amount_usd"]) for one in found["corrections"]] == [Decimal(n).scaleb(-12) for n in amounts]
    assert Decimal(found["corrections_usd"]) == Decimal(sum(amounts)).scaleb(-12)
    assert found["corrected_cost_usd"] == expected
    other, listed = rig.ask("finance", "GET", "/admin/v1/entries").json()["entries"]
    assert {name: listed[name] for name in ("corrections_usd", "corrected_cost_usd")} == {
        name: found[name] for name in ("corrections_usd", "corrected_cost_usd")
    }
    assert other["corrected_cost_usd"] == other["cost_usd"]


async def test_a_key_reads_why_its_own_request_was_corrected() -> None:
    rig = await rig_with(make_entry(key_id="key-0"))
    rig.entries.booked.append(correction(1, -7, "refund"))
    [found] = rig.ask("app", "GET", f"/v1/requests/{'0' * 32}").json()["corrections"]
    assert found == {
        "at_us": NOW_US + 1, "kind": "refund", "reference": "version 1", "reason": "a reason",
        "amount_usd": "-0.000000000007",
    }  # fmt: skip


async def test_a_key_sees_its_own_request_and_nobody_elses() -> None:
    entries = [make_entry(f"{index:032x}", key_id=f"key-{index}") for index in range(len(ROLES))]
    rig = await rig_with(*entries)
    for asker, role in enumerate(ROLES):
        for owner in range(len(ROLES)):
            status = rig.ask(role, "GET", f"/v1/requests/{owner:032x}").status_code
            assert status == (200 if asker == owner else 404)
    unknown = rig.ask("app", "GET", f"/v1/requests/{'f' * 32}").json()
    another = rig.ask("app", "GET", f"/v1/requests/{1:032x}").json()
    assert unknown["error"]["code"] == another["error"]["code"] == "request_not_found"


async def test_a_full_page_says_where_the_next_one_starts() -> None:
    rig = await rig_with(*(make_entry(f"{index:032x}") for index in range(3)))
    page = rig.ask("finance", "GET", "/admin/v1/entries?limit=2").json()
    assert page["next_before"] == page["entries"][-1]["request_id"] == f"{1:032x}"
    assert rig.ask("finance", "GET", "/admin/v1/entries?limit=5").json()["next_before"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "status=odd", "since=yesterday", "colour=red"])
async def test_odd_filters_are_refused_by_name(query: str) -> None:
    rig = await rig_with()
    answer = rig.ask("finance", "GET", f"/admin/v1/entries?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0] in answer.json()["error"]["message"]


@pytest.mark.parametrize("order", ["newest", "cost", "total_time", "first_token"])
async def test_every_order_has_pages(order: str) -> None:
    rig = await rig_with(make_entry())
    path = f"/admin/v1/entries?order={order}&limit"
    assert rig.ask("finance", "GET", f"{path}=1").json()["next_before"] == "0" * 32
    assert rig.ask("finance", "GET", f"{path}=2").json()["next_before"] is None
    assert rig.ask("finance", "GET", f"{path}=1&before={'0' * 32}").status_code == 200
