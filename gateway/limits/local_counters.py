"""Counters for a single process: no store, nothing shared."""

import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.limits.counters import (
    LESS_SECONDS,
    Account,
    AccountBooks,
    Books,
    Corrections,
    Grant,
    Holding,
    Places,
    Rate,
    Shortage,
    Standing,
    no_corrections,
    no_end_users,
)
from gateway.limits.held_places import HeldPlaces

MINUTE_SECONDS = 60.0


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float

    def wait_seconds(self, amount: float, capacity: float, now: float) -> float:
        """Time until `amount` is available; takes nothing."""
        self.level = min(capacity, self.level + capacity * max(0.0, now - self.at) / MINUTE_SECONDS)
        self.at = max(self.at, now)
        return max(0.0, (min(amount, capacity) - self.level) / capacity * MINUTE_SECONDS)


class LocalCounters:
    """Implements Counters. Until the ledger is first read, or if it never is, nothing counts as spent.

    `share` is the number of such processes that divide every rate among themselves.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        share: Callable[[], int] = lambda: 1,
        less_seconds: float = LESS_SECONDS,
    ) -> None:
        self._clock = clock
        self._less_seconds = less_seconds
        self._share = share
        self._buckets: dict[str, _Bucket] = {}
        self._places = HeldPlaces(share)
        self._booked: dict[Account, int] = {}
        self._marks: dict[Account, int] = {}  # accounts read by themselves, and the reading that they count as
        self._held: set[Account] = set()  # of end users
        self._less_since: dict[Account, float] = {}
        self._begun = 0
        self._read = 0
        self._corrections = 0

    async def take(self, rates: Sequence[Rate], left: list[float] | None = None) -> Shortage | None:
        now, share = self._clock(), self._share()
        buckets: list[_Bucket] = []
        for rate in rates:
            capacity = rate.per_minute / share
            bucket = self._buckets.setdefault(rate.bucket, _Bucket(capacity, now))
            if wait := bucket.wait_seconds(rate.amount, capacity, now):
                return Shortage(rate, wait)
            buckets.append(bucket)
        for bucket, rate in zip(buckets, rates, strict=True):
            bucket.level -= rate.amount
        if left is not None:  # assumes the others used as much of their shares
            left.extend(bucket.level * share for bucket in buckets)
        return None

    async def enter(self, name: str, places: Sequence[Places]) -> Places | None:
        return self._places.try_take(name, places)

    def leave(self, name: str) -> Awaitable[object] | None:
        self._places.give_back(name)

    async def renew(self) -> None:
        """There is nobody to tell."""

    async def lease(self, account: Account, *, limit: int, holding: Holding, need: int, want: int) -> Grant:
        self._hold({account: holding})
        spent = self._booked.get(account, 0 if not self._read else None)
        if spent is None:
            return Grant(0, is_unread=True)
        free = limit - spent - holding.total
        is_unsent = holding.as_of >= self._read and account not in self._marks
        surely_gone = spent + (holding.unsent if is_unsent else 0)
        if need <= free and account.is_end_users:
            self._held.add(account)
        return Grant(min(want, free) if need <= free else 0, spent, surely_gone=surely_gone)

    async def report(self, holdings: Mapping[Account, Holding]) -> Standing:
        self._hold(holdings)
        return Standing(self._begun, self._read)

    async def read_books(
        self,
        books: Books,
        *,
        is_urgent: bool = False,
        of_end_users: AccountBooks = no_end_users,
        corrections: Corrections = no_corrections,
    ) -> bool:
        self._begun += 1
        number = self._begun
        corrected = await corrections()  # before the sums: they have these, and may have more
        held = self._held & self._booked.keys()
        booked = {**await books(), **(await of_end_users(held) if held else {})}
        if number > self._read:
            later = {account: self._booked[account] for account, mark in self._marks.items() if mark >= number}
            self._booked = self._believed({**booked, **later}, is_corrected=corrected > self._corrections)
            self._corrections = max(self._corrections, corrected)
            self._marks = {account: self._marks[account] for account in later}
            self._read = self._read if self._less_since else number
        return True

    async def read_accounts(self, accounts: Collection[Account], of_end_users: AccountBooks) -> int:
        mark = self._begun
        booked = await of_end_users(accounts)
        new = booked.keys() - self._booked.keys() if 0 < self._read <= mark else ()
        self._booked |= {account: booked[account] for account in new}
        self._marks |= dict.fromkeys(new, mark)
        return len(new)

    async def share(self, name: str, own: Mapping[str, int]) -> Mapping[str, int]:
        return own

    def _hold(self, holdings: Mapping[Account, Holding]) -> None:
        for account, holding in holdings.items():
            if account.is_end_users:
                (self._held.add if holding.total or holding.spent else self._held.discard)(account)

    def _believed(self, booked: Mapping[Account, int], *, is_corrected: bool) -> dict[Account, int]:
        """A reading, with sums that dropped replaced by the previous ones until the drop has lasted, unless that
        `is_corrected`."""
        now, less_since, spent = self._clock(), self._less_since, dict(booked)
        self._less_since = {}
        if is_corrected:
            return spent
        for account, before in self._booked.items():
            since = less_since.get(account, now)
            if account in spent and spent[account] < before and now - since < self._less_seconds:
                self._less_since[account], spent[account] = since, before
        return spent

    async def aclose(self) -> None:
        """There is nothing to close."""
