"""The price of a request is the one at the moment it was accepted, or unknown."""

import itertools
from dataclasses import replace

from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_prices, make_snapshot
from tests.rig import A, B, Rig


async def test_unknown_prices_are_null_and_never_zero() -> None:
    rig = Rig()
    rig.pipeline.snapshot = make_snapshot(candidates=[make_candidate("a", backend="one", prices=None)])
    caller = await rig.ask()
    assert rig.entry.cost is None
    assert "x-breakeven-cost-usd" not in caller.headers


async def test_a_request_is_priced_by_its_own_time_and_not_by_a_timer() -> None:
    """A microsecond before the new price, at it, and after: one decision, one accepted_at, one price each."""
    change_us = 1_800_000_000_000_000
    times = [change_us - 1, change_us, change_us + 1]
    dearer = make_snapshot(candidates=[replace(A, prices=make_prices(2.0, 8.0)), B])
    asked: list[int] = []

    def snapshot_at(at_us: int) -> Snapshot:
        asked.append(at_us)
        return dearer

    rig = Rig(snapshot_at=snapshot_at)
    rig.pipeline.snapshot = replace(rig.pipeline.snapshot, prices_until_us=change_us)
    for now_us in times:
        rig.pipeline.now_us = lambda now_us=now_us: now_us
        await rig.ask()
    assert [entry.intent.accepted_at_us for entry in rig.ledger.entries] == times
    old = 12 * 1_000_000 + 4 * 4_000_000
    assert [entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost] == [old, 2 * old, 2 * old]
    assert asked == [change_us], "once, by the first who needs it"


async def test_prices_that_a_clock_put_forward_brought_in_force_go_when_it_is_put_back() -> None:
    change_us = 1_800_000_000_000_000
    cheap = replace(make_snapshot(candidates=[A, B]), prices_until_us=change_us)
    dear = make_snapshot(candidates=[replace(A, prices=make_prices(2.0, 8.0)), B])

    def snapshot_at(at_us: int) -> Snapshot:
        return replace(dear if at_us >= change_us else cheap, prices_at_us=at_us)

    rig = Rig(snapshot_at=snapshot_at)
    rig.pipeline.snapshot = cheap
    for now_us in (change_us - 1, change_us + 1, change_us - 1, change_us):
        rig.pipeline.now_us = lambda now_us=now_us: now_us
        await rig.ask()
    old = 12 * 1_000_000 + 4 * 4_000_000
    assert [entry.cost.total_pico_usd for entry in rig.ledger.entries if entry.cost] == [old, 2 * old, old, 2 * old]


async def test_the_decision_and_the_books_have_one_time() -> None:
    """If a price changes while a request is being decided, it applies to the next request."""

    def snapshot_at(at_us: int) -> Snapshot:
        raise AssertionError(f"this request was accepted before {at_us}")

    ticks = itertools.count()  # 0 authenticates, 1 accepts; whoever looks again is too late
    rig = Rig(now_us=lambda: next(ticks), snapshot_at=snapshot_at)
    rig.pipeline.snapshot = replace(rig.pipeline.snapshot, prices_until_us=2)
    await rig.ask()
    assert rig.entry.intent.accepted_at_us == 1
