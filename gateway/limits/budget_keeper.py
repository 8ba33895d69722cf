"""Keeps this worker's holdings, the shared store and the ledger's sums in step, in the background. Knows protocols
only."""

import asyncio
import contextlib
import logging
from collections.abc import Collection

import msgspec

from gateway.errors import DatabaseDown, StateError
from gateway.ledger.batch import Batch
from gateway.ledger.journal import Journal
from gateway.ledger.shipper import EntrySink
from gateway.limits.admission import Admission
from gateway.limits.counters import (
    Account,
    AccountBooks,
    Books,
    Corrections,
    CountersDown,
    no_corrections,
    no_end_users,
)
from gateway.limits.treasury import Treasury

log = logging.getLogger(__name__)
REPORT_SECONDS = 0.5
READ_SECONDS = 10.0
BUSY_SECONDS = 0.25
BOOKS_SECONDS = 20.0
"""A worker's leases end after LEASE_SECONDS without a report, so a slow database must not delay reports."""
REST_SECONDS = 0.1  # minimum pause, however many requests wait for a reading


class CountingSink:
    """An EntrySink that tells admission which entries are on their way to the database and which have arrived."""

    def __init__(self, sink: EntrySink, admission: Admission) -> None:
        self._sink = sink
        self._admission = admission

    async def insert(self, batch: Batch) -> int:
        self._admission.sending(batch.request_ids)
        inserted = await self._sink.insert(batch)
        self._admission.shipped(batch.request_ids)
        return inserted


async def carry_unshipped(journal: Journal, admission: Admission) -> None:
    """Hold what the journal has settled but the database does not have yet. Must run before anything is leased.

    Raises StateError if it holds entries of a later version.
    """
    position = journal.shipped
    while True:
        batch, end = journal.read_settled(position)
        if end == position:
            return
        try:
            for entry in batch:
                admission.carry(entry)
        except msgspec.DecodeError as error:
            raise StateError(
                f"the journal holds {journal.unshipped_entries:,} entries that are not in the database, and that this "
                f"version cannot read ({error}): start the version that wrote them until it has shipped them"
            ) from error
        position = end
        await asyncio.sleep(0)


class BudgetKeeper:
    """Call `start` before the first request, `run` and `read_end_users` until cancelled, then `stop`."""

    def __init__(
        self,
        treasury: Treasury,
        books: Books,
        of_end_users: AccountBooks = no_end_users,
        corrections: Corrections = no_corrections,
        *,
        busy_seconds: float = BUSY_SECONDS,
    ) -> None:
        self._treasury = treasury
        self._books = books
        self._of_end_users = of_end_users
        self._corrections = corrections
        self._busy_seconds = busy_seconds
        self._read_at = float("-inf")
        self.is_down = False
        """Whether the shared store was unreachable the last time."""
        self._is_unread = False
        self._has_read = False
        self._read = 0

    async def start(self) -> None:
        """Waits for a reading of the ledger that begins now and so includes what this worker spent before its
        restart."""
        while True:
            if not await self.step() or self._has_read:
                return
            await asyncio.sleep(self._busy_seconds)

    async def run(self) -> None:
        """Reports twice a second; reads the ledger every ten seconds, or sooner when a request waits for it."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await self._treasury.wants_reading.wait()
            await asyncio.sleep(REST_SECONDS if await self.step() else REPORT_SECONDS)

    async def read_end_users(self) -> None:
        """Reads accounts of end users that requests wait for, all together that have come meanwhile."""
        unread, wants = self._treasury.unread, self._treasury.wants_accounts
        while True:
            await wants.wait()
            wants.clear()
            accounts = list(unread)
            if not await self._read_accounts(accounts):
                await asyncio.sleep(REST_SECONDS)  # the store settles, or a later reading was sooner
            for account in accounts:
                unread.pop(account).set()

    async def _read_accounts(self, accounts: Collection[Account]) -> int:
        """How many are known from now on."""
        try:
            async with asyncio.timeout(BOOKS_SECONDS):
                return await self._treasury.counters.read_accounts(accounts, self._of_end_users)
        except (CountersDown, DatabaseDown, TimeoutError):
            return 0  # `step` meets and tells the same
        except Exception:
            log.exception("cannot read from the database what end users have spent; their requests wait for it")
            return 0

    async def step(self) -> bool:
        """One report, and a reading if due. Failures are retried at the next step; meanwhile leases are spent and not
        renewed."""
        try:
            read = await self._treasury.report()
            if read > self._read:  # whoever read them
                self._treasury.is_blind = False
            self._read = read
            if await self._read_books(is_urgent=read == 0 or self._treasury.wants_reading.is_set()):
                await self._treasury.report()
            if self.is_down:
                log.warning("budgets and rates are shared again")
            self.is_down = False
            return True
        except CountersDown as error:
            if not self.is_down:
                log.error(
                    "the store of budgets and rates is down (%s); leases are spent, then budgeted keys get 503", error
                )
            self.is_down = True
        except (DatabaseDown, TimeoutError) as error:
            why = str(error) or f"the database did not answer within {BOOKS_SECONDS:.0f} s"
            if not self._is_unread:
                log.error("cannot read what budgets have spent; the last known figures stay in force: %s", why)
            self._is_unread = self._treasury.is_blind = True
        except Exception:
            if not self._is_unread:
                log.exception(
                    "cannot read from the database what budgets have spent; the last known figures stay in force"
                )
            self._is_unread = self._treasury.is_blind = True
        return False

    async def stop(self) -> None:
        """Returns what was not spent."""
        with contextlib.suppress(CountersDown):  # otherwise the store forgets it after a minute of silence
            await self._treasury.close()

    async def _read_books(self, *, is_urgent: bool) -> bool:
        """Whether this worker made a new reading."""
        now = self._treasury.monotonic()
        if not is_urgent and now - self._read_at < READ_SECONDS:
            return False
        self._treasury.wants_reading.clear()
        is_urgent = is_urgent or not self._has_read
        async with asyncio.timeout(BOOKS_SECONDS):
            has_read = await self._treasury.counters.read_books(
                self._books, is_urgent=is_urgent, of_end_users=self._of_end_users, corrections=self._corrections
            )
        if has_read and self._is_unread:
            log.warning("what budgets have spent can be read again")
            self._is_unread = False
        self._has_read |= has_read
        self._read_at = now if self._has_read else self._read_at
        return has_read
