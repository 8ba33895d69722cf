"""How purses are filled and emptied, and what is reported to the store."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import pytest

from gateway.limits.counters import LEASE_SECONDS, Account, Grant, Holding, Standing, budget_account
from gateway.limits.local_counters import LocalCounters
from gateway.limits.treasury import PREFETCH, Treasury

ACCOUNT = budget_account("k", "2026-11")
LIMIT = 1000
LONG_SECONDS = 3600.0
T = TypeVar("T")


class HeardCounters(LocalCounters):
    """The real counters, recording what was reported."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[Account, int] = {}
        self.asked: list[tuple[int, int]] = []

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        self.asked.append((need, want))
        return await super().lease(account, limit=limit, holding=holding, need=need, want=want)

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        self.held |= {account: holding.total for account, holding in holdings.items()}
        return await super().report(holdings)


async def test_a_purse_that_nobody_uses_for_a_while_is_given_back_and_forgotten() -> None:
    counters = HeardCounters()
    treasury = Treasury(counters, idle_reports=3)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 10, 0.0) is None
    for _ in range(2):
        await treasury.report()
        assert counters.held == {ACCOUNT: 10 + PREFETCH * 10}
    await treasury.report()
    assert counters.held == {ACCOUNT: 0}
    assert treasury.purse(ACCOUNT, LIMIT) is not purse


async def test_a_purse_in_use_is_kept() -> None:
    counters = HeardCounters()
    treasury = Treasury(counters, idle_reports=2)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 10, 0.0) is None
    for _ in range(4):
        assert purse.reserve(10)
        await treasury.report()
    assert counters.held == {ACCOUNT: 10 + PREFETCH * 10}
    assert treasury.purse(ACCOUNT, LIMIT) is purse


async def test_the_purse_of_a_request_at_a_free_model_is_kept_as_its_fallback_may_cost() -> None:
    treasury = Treasury(HeardCounters(), idle_reports=2)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert purse.reserve(0)
    for _ in range(4):
        await treasury.report()
    assert treasury.purse(ACCOUNT, LIMIT) is purse
    purse.settle(0, 0)
    await treasury.report()
    assert treasury.purse(ACCOUNT, LIMIT) is not purse


async def test_only_what_the_purse_lacks_is_asked_for() -> None:
    counters = HeardCounters()
    treasury = Treasury(counters)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 1, 0.0) is None
    assert await treasury.obtain(purse, 50, 0.0) is None
    assert counters.asked == [(1, 1 + PREFETCH), (50 - 17, 50 - 17 + PREFETCH * 50)]


async def test_a_request_for_the_whole_budget_waits_for_what_is_only_held() -> None:
    """No reading of the ledger is needed, as nothing is spent."""
    treasury = Treasury(HeardCounters())
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, LIMIT, 0.0) is None
    assert purse.reserve(LIMIT)
    waiting = asyncio.create_task(treasury.obtain(purse, LIMIT, LONG_SECONDS))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    purse.settle(LIMIT, 0)
    assert await waiting is None
    assert not treasury.wants_reading.is_set()


async def test_a_request_for_more_than_is_left_is_refused_at_once() -> None:
    counters = HeardCounters()
    treasury = Treasury(counters)

    async def books() -> dict[Account, int]:
        return {ACCOUNT: 1}

    await counters.read_books(books)
    refusal = await treasury.obtain(treasury.purse(ACCOUNT, LIMIT), LIMIT, LONG_SECONDS)
    assert refusal is not None
    assert (refusal.amount, refusal.spent) == (0, 1)


async def test_what_was_leased_too_long_ago_is_neither_spent_nor_claimed_and_what_was_spent_is() -> None:
    seconds = 0.0
    counters = HeardCounters()
    treasury = Treasury(counters, monotonic=lambda: seconds)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 30, 0.0) is None
    assert treasury.reserve(purse, 30)
    assert treasury.reserve(purse, 20)
    purse.settle(20, 15)
    seconds = LEASE_SECONDS / 2
    await treasury.report()
    assert counters.held == {ACCOUNT: 30 + PREFETCH * 30}, "all of it, for another while"
    seconds += LEASE_SECONDS - 1
    assert treasury.free(purse) > 0
    seconds += 1
    assert not treasury.reserve(purse, 1)
    purse.settle(10, 4)
    assert treasury.free(purse) == 0, "what a request gives back that began before is no newer"
    await treasury.report()
    assert counters.held == {ACCOUNT: 20 + 15 + 4}
    assert await treasury.obtain(purse, 1, 0.0) is None
    assert treasury.reserve(purse, 1)


async def test_what_was_leased_under_a_higher_limit_is_not_spent_once_it_is_lowered() -> None:
    treasury = Treasury(HeardCounters())
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 30, 0.0) is None
    assert treasury.reserve(purse, 30)
    assert treasury.free(treasury.purse(ACCOUNT, 2 * LIMIT)) > 0
    assert treasury.free(treasury.purse(ACCOUNT, 40)) == 0
    assert await treasury.obtain(purse, 11, 0.0) is not None
    assert await treasury.obtain(purse, 10, 0.0) is None
    treasury.purse(ACCOUNT, 20)
    purse.settle(30, 25)
    assert not treasury.reserve(purse, 1), "nor is what a request leaves unused that began under it"


async def test_a_purse_of_a_window_that_is_read_no_more_is_forgotten() -> None:
    """A stream that outlived its month, or a machine that slept over the end of one."""
    counters = HeardCounters()
    treasury = Treasury(counters, idle_reports=2)
    purse = treasury.purse(ACCOUNT, LIMIT)
    assert await treasury.obtain(purse, 10, 0.0) is None
    assert purse.reserve(10)
    purse.settle(10, 7)
    purse.sending(7)
    purse.shipped(7)

    async def next_month() -> dict[Account, int]:
        return {}

    for _ in range(3):
        await treasury.report()
        await counters.read_books(next_month)
    assert counters.held[ACCOUNT] == 0
    assert treasury.purse(ACCOUNT, LIMIT) is not purse
    assert not treasury.reserve(treasury.purse(ACCOUNT, LIMIT), 1), "nor spent, until it is read again"
    grant = await treasury.obtain(treasury.purse(ACCOUNT, LIMIT), 1, 0.0)
    assert grant is not None
    assert grant.is_unread


class LateCounters(HeardCounters):
    """One command arrives when told to, whether or not anybody waits for it; `held` is what the store heard last."""

    def __init__(self, late: str) -> None:
        super().__init__()
        self._late = late
        self.is_sent, self.arrives = asyncio.Event(), asyncio.Event()

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        asked = super().lease(account, limit=limit, holding=holding, need=need, want=want)
        return await self._sent("lease", asked)

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        return await self._sent("report", super().report(holdings))

    async def _sent(self, command: str, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._arrived(command, work))

    async def _arrived(self, command: str, work: Coroutine[Any, Any, T]) -> T:
        if command == self._late and not self.is_sent.is_set():
            self.is_sent.set()
            await self.arrives.wait()
        answer = await work
        if isinstance(answer, Grant):
            self.held[ACCOUNT] = answer.amount
        return answer


@pytest.mark.parametrize("late", ["lease", "report"])
async def test_what_was_under_way_when_its_asker_left_is_heard_before_what_is_said_next(late: str) -> None:
    counters = LateCounters(late)
    treasury = Treasury(counters)
    purse = treasury.purse(ACCOUNT, LIMIT)
    if late == "report":
        assert await treasury.obtain(purse, 10, 0.0) is None
    asking = asyncio.create_task(treasury.report() if late == "report" else treasury.obtain(purse, 10, 0.0))
    await counters.is_sent.wait()
    asking.cancel()
    closing = asyncio.create_task(treasury.close())
    for _ in range(9):
        await asyncio.sleep(0)
    counters.arrives.set()
    await asyncio.wait((asking, closing))
    for _ in range(9):
        await asyncio.sleep(0)
    assert counters.held == {ACCOUNT: 0}
