"""One worker's purses and how they are filled: leases from the store, readings of the ledger. Knows no rules of
limits."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.clock import unstepped_seconds
from gateway.limits.counters import LEASE_SECONDS, Account, Counters, Grant, Holding
from gateway.limits.local_counters import LocalCounters
from gateway.limits.purse import Purse
from gateway.process.tasks import to_its_end

POLL_SECONDS = 0.02
IDLE_REPORTS = 120  # a minute: unused leases are kept that long, in case the store goes down
END_USERS_IDLE_REPORTS = 20
"""Of end users there may be any number, and each purse is reported as long as it is kept."""
UNREAD_SECONDS = 5.0
"""How long a request waits for the first reading of its end user's account at least: that is no shortage."""
ASK_AGAIN_SECONDS = 0.5  # whether another worker has read the account meanwhile
PREFETCH = 16
"""A lease asks for this many requests' worth: fewer round trips, and a reserve while the store is down."""


@dataclass(slots=True)
class Treasury:
    """Waits for money that is merely held; reports holdings to the store about twice a second."""

    counters: Counters = field(default_factory=LocalCounters)
    monotonic: Callable[[], float] = unstepped_seconds
    idle_reports: int = IDLE_REPORTS
    wants_reading: asyncio.Event = field(default_factory=asyncio.Event)
    is_blind: bool = False
    """Whether the ledger could not be read the last time, as far as is known here."""
    unread: dict[Account, asyncio.Event] = field(default_factory=dict[Account, asyncio.Event])
    """End users' accounts that requests wait for; whoever reads them sets their events."""
    wants_accounts: asyncio.Event = field(default_factory=asyncio.Event)
    _purses: dict[Account, Purse] = field(default_factory=dict[Account, Purse])
    _queues: dict[Account, asyncio.Lock] = field(default_factory=dict[Account, asyncio.Lock])
    _wire: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read: int = 0
    _ends_at: float = float("-inf")  # of everything leased

    def purse(self, account: Account, limit: int) -> Purse:
        """This worker's purse of an account, with the limit given last."""
        purse = self._purses.get(account)
        if purse is None:
            purse = self._purses[account] = Purse(account, limit, as_of=self._read)
        elif limit < purse.limit:
            purse.lower(limit)
        purse.limit = limit
        return purse

    def windows_in_use(self) -> set[str]:
        """Windows of the accounts in which requests are in progress or wait for money."""
        return {purse.account.window for purse in self._purses.values() if purse.under_way or purse.waiting}

    def free(self, purse: Purse) -> int:
        """What may be spent now. Expired leases are dropped: the money may be leased to others by now."""
        if self.monotonic() >= self._ends_at:
            purse.give_back()
        return purse.free

    def reserve(self, purse: Purse, amount: int) -> bool:
        """Reserve money for a request, if enough is free."""
        self.free(purse)
        return purse.reserve(amount)

    async def obtain(self, purse: Purse, amount: int, wait_seconds: float) -> Grant | None:
        """Make `amount` free in the purse, waiting for what others hold. None on success, else the refusal.

        Raises CountersDown.
        """
        asked_at = self.monotonic()
        deadline = asked_at + wait_seconds
        queue = self._queues.setdefault(purse.account, asyncio.Lock())
        purse.waiting += 1
        try:
            async with queue:  # first come, first served: only the head of the queue asks the store
                while self.free(purse) < amount:
                    grant = await self._lease(purse, amount)
                    if grant is None or grant.amount:
                        continue
                    if not grant.is_unread and amount > purse.limit - grant.surely_gone:
                        return grant
                    if grant.is_unread and purse.account.is_end_users:
                        if self.monotonic() >= max(deadline, asked_at + UNREAD_SECONDS):
                            return grant
                        await self._until_read(purse.account)
                        continue
                    if grant.is_unread or amount > purse.limit - _gone_at_most(grant, purse):
                        self.wants_reading.set()  # only a reading can tell: a charge may be both booked and held
                    if self.monotonic() >= deadline:
                        return grant
                    await asyncio.sleep(POLL_SECONDS)
                return None
        finally:
            purse.waiting -= 1
            if not purse.waiting:
                self._queues.pop(purse.account, None)

    async def report(self) -> int:
        """Report holdings to the store and apply the last reading of the ledger; returns its number, 0 if there is
        none.

        Call it about twice a second. Raises CountersDown, and then nothing changed.
        """
        async with self._wire:
            asked_at = self._begin_asking()
            purses = list(self._purses.values())
            shipped = [(purse, purse.shipped_amount) for purse in purses]
            standing = await to_its_end(self.counters.report({purse.account: purse.holding for purse in purses}))
            self._ends_at = asked_at + LEASE_SECONDS
            changed: dict[Account, Holding] = {}
            for purse, amount in shipped:
                purse.await_reading(standing.begun + 1, amount)
                purse.books_read(standing.read)
                purse.idle_reports += 1
                is_wanted = purse.waiting or purse.idle_reports < self._idle_reports_of(purse.account)
                is_returned = not is_wanted or purse.account in standing.tight
                if is_returned:  # two waiting workers must not each keep a part
                    purse.give_back()
                if is_returned or standing.read != self._read:
                    changed[purse.account] = purse.holding
                if purse.is_empty and not is_wanted:
                    del self._purses[purse.account]
            self._read = standing.read
            if changed:
                await to_its_end(self.counters.report(changed))
            return standing.read

    async def close(self) -> None:
        """Return everything that no request needs. Raises CountersDown."""
        async with self._wire:
            for purse in self._purses.values():
                purse.give_back()
            await self.counters.report({purse.account: purse.holding for purse in self._purses.values()})

    def _idle_reports_of(self, account: Account) -> int:
        return min(self.idle_reports, END_USERS_IDLE_REPORTS) if account.is_end_users else self.idle_reports

    async def _until_read(self, account: Account) -> None:
        """Waits until an account that was in no reading has been read, but not for long."""
        is_read = self.unread.setdefault(account, asyncio.Event())
        self.wants_accounts.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASK_AGAIN_SECONDS):
                await is_read.wait()

    async def _lease(self, purse: Purse, amount: int) -> Grant | None:
        """None if enough became free while waiting for the turn."""
        async with self._wire:
            asked_at = self._begin_asking()
            need = amount - purse.free
            if need <= 0:
                return None
            grant = await to_its_end(  # a store that got it after a later message would take the old holding for ours
                self.counters.lease(
                    purse.account, limit=purse.limit, holding=purse.holding, need=need, want=need + PREFETCH * amount
                )
            )
            self._ends_at = asked_at + LEASE_SECONDS
            purse.free += grant.amount
            return grant

    def _begin_asking(self) -> float:
        """Time of the request to the store, which never sees it earlier. Drops leases that have expired by now, so that
        they are not claimed again."""
        now = self.monotonic()
        if now >= self._ends_at:
            for purse in self._purses.values():
                purse.give_back()
        return now


def _gone_at_most(grant: Grant, purse: Purse) -> int:
    return grant.spent + grant.held_spent + purse.holding.spent
