"""Ships settled entries from the journal to the database at least once; the database keeps each exactly once.

A database that is down, slow or locked only delays this: the journal grows and requests go on. Data loss in the
database (failover to a lagging replica, a restored backup) is detected by sending the last shipped entry along with
each batch, or alone every minute when idle: if it is new there, everything the journal still holds is shipped again.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from gateway.clock import now_us
from gateway.instants import HOUR_US
from gateway.ledger.batch import Batch
from gateway.ledger.journal import Journal
from gateway.ledger.segments import Position
from gateway.ledger.shipped_before import SURELY_KEPT_US, accepted_at_us, is_young

log = logging.getLogger(__name__)

BATCH_ENTRIES = 250
MOST_ENTRIES = 2000  # in a batch when catching up: with slow commits, larger batches are the only way
POLL_SECONDS = 0.25
LOOK_POLLS = 240  # a minute
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 10.0
TOLD_FAILURES = 3
TOLD_SECONDS = 30.0
YOUNG_US = SURELY_KEPT_US - HOUR_US


class EntrySink(Protocol):
    """Where entries go."""

    async def insert(self, batch: Batch) -> int:
        """Durable when it returns the number of entries that were new; those already there are left as they are."""
        ...


class Shipper:
    """Ships one journal. `run` until cancelled, then `drain`."""

    def __init__(
        self,
        journal: Journal,
        sink: EntrySink,
        *,
        now_us: Callable[[], int] = now_us,
        told_seconds: float = TOLD_SECONDS,
    ) -> None:
        self._journal = journal
        self._sink = sink
        self._now_us = now_us
        self._told_seconds = told_seconds
        self._last = Batch()
        self._has_lost = False
        self._idle_polls = 0
        self._failures_in_a_row = 0
        self._failures = 0
        self._is_unanswered = False
        self._shipped = 0
        self._duplicates = 0

    async def run(self) -> None:
        """Ship forever. Failures are retried with backoff, up to ten seconds apart."""
        while True:
            wait_seconds = await self._try_to_ship()
            await asyncio.sleep(wait_seconds)

    async def drain(self, timeout_seconds: float) -> bool:
        """Ship everything settled; False when entries remain, which the next start ships.

        Waits no longer than the timeout for a database that does not answer, and never for what a failed sync lost.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while not self._journal.has_given_all:
                    wait_seconds = await self._try_to_ship()
                    if not self._journal.has_given_all:
                        await asyncio.sleep(wait_seconds)
        return not self._journal.unshipped_entries

    async def ship_once(self) -> int:
        """Ship one batch and return its size. Raises whatever the database raises, leaving the journal unchanged."""
        if self._has_lost:
            await self._ship_again()
        batch, position = await self._read_batch()
        known = self._last if self._is_surely_kept(self._last) else Batch()
        if batch or (known and self._is_time_to_look()):
            inserted = await self._sink.insert(Batch.joined((known, batch)) if known else batch)
            if known and inserted > len(batch):
                self._has_lost = True
                return len(batch)
            self._last = batch.last() or known
            self._duplicates += len(batch) - inserted
        if position != self._journal.shipped:
            await self._journal.mark_shipped(position, len(batch))
        self._shipped += len(batch)
        return len(batch)

    def _is_time_to_look(self) -> bool:
        """Whether to check, while idle, that the database still has the last entry. Once a minute: after a quiet
        weekend that entry is too old to check with."""
        self._idle_polls = (self._idle_polls + 1) % LOOK_POLLS
        return not self._idle_polls

    @property
    def is_failing(self) -> bool:
        """Whether the last few attempts all failed, or one was not answered for long; a single failure is not worth
        reporting."""
        return self._is_unanswered or self._failures_in_a_row >= TOLD_FAILURES

    def gauges(self) -> Mapping[str, float]:
        """The journal's gauges, plus `shipped_entries`, `duplicate_entries`, `shipping_failures` since start."""
        return {
            **self._journal.gauges(),
            "shipped_entries": self._shipped,
            "duplicate_entries": self._duplicates,
            "shipping_failures": self._failures,
        }

    async def _try_to_ship(self) -> float:
        """Ship a batch; returns the seconds to wait before the next."""
        telling = asyncio.get_running_loop().call_later(self._told_seconds, self._tell_unanswered)
        try:
            shipped = await self.ship_once()
        except Exception as error:  # noqa: BLE001 - the outermost edge of this task: whatever a database raises, go on
            self._failures += 1
            self._failures_in_a_row += 1
            wait = min(FIRST_WAIT_SECONDS * 2 ** min(self._failures_in_a_row - 1, 10), LONGEST_WAIT_SECONDS)
            log.warning(
                "Cannot ship the ledger (%s: %s); %d entries wait in the journal, next try in %.1f s",
                type(error).__name__, str(error)[:500], self._journal.unshipped_entries, wait,
            )  # fmt: skip
            return wait * random.uniform(0.5, 1.0)
        finally:
            telling.cancel()
        self._failures_in_a_row = 0
        self._is_unanswered = False
        return 0.0 if shipped >= BATCH_ENTRIES else POLL_SECONDS

    def _tell_unanswered(self) -> None:
        self._is_unanswered = True
        log.warning(
            "The database has not taken the ledger's last entries for %.0f s, and has not refused them: it is slow, or "
            "waits for a lock that another session holds (see PostgreSQL's `pg_blocking_pids`); %d entries wait in the "
            "journal",
            self._told_seconds, self._journal.unshipped_entries,
        )  # fmt: skip

    def _is_surely_kept(self, batch: Batch) -> bool:
        """Too young for any retention to have deleted it; an older entry, sent again, could be booked twice."""
        now = self._now_us()
        return all(is_young(accepted_at_us(payload), now, young_us=YOUNG_US) for payload in batch.payloads)

    async def _ship_again(self) -> None:
        """Ship again from the oldest entry that is here and young enough; the database ignores those it still has."""
        position = first = self._journal.start
        lost = 0
        while position < (shipped := self._journal.shipped):
            batch, end = self._journal.read_settled(position, shipped)
            if not lost and not self._is_surely_kept(batch):
                first = end
            else:
                lost += len(batch)
            position = end
            await asyncio.sleep(0)
        self._last, self._has_lost = Batch(), False
        self._journal.ship_again(first, lost)
        log.error(
            "The database has lost entries that it had taken: a replica that was behind took over, or a backup was "
            "restored. The last %d are shipped again from the journal; older ones are not, nor are keys, rules and "
            "feedback of that time: look what of them is missing",
            lost,
        )

    async def _read_batch(self) -> tuple[Batch, Position]:
        pieces: list[Batch] = []
        found = 0
        position = self._journal.shipped
        wanted = min(max(self._journal.unshipped_entries // 2, BATCH_ENTRIES), MOST_ENTRIES)
        while found < wanted:
            piece, end = self._journal.read_settled(position)
            if end == position:
                break
            pieces.append(piece)
            found += len(piece)
            position = end
            await asyncio.sleep(0)  # yield to requests: reading a piece takes a millisecond or two
        return Batch.joined(pieces), position
