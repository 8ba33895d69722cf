"""The durable half of the ledger: a Ledger that writes to local segments and never to a database.

1. An intent is in the kernel's page cache before the upstream call; a settlement is on disk before `settle` returns.
2. An intent is accepted only if its settlement is certain to fit, even if the disk fills up.
3. After a failed sync everything is refused, and the process is told to stop (see group_commit.py).
"""

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from gateway.clock import now_us
from gateway.errors import LedgerUnavailable
from gateway.ledger.age import AgeMarks
from gateway.ledger.batch import Batch
from gateway.ledger.disk import Disk, LocalDisk, sync_all
from gateway.ledger.entry import Checkpoint, Entry, Intent
from gateway.ledger.group_commit import GroupCommit
from gateway.ledger.record import Framing, Kind
from gateway.ledger.recovery import OpenIntent, OpenIntents, Recovered, settle_orphan
from gateway.ledger.segments import NoRoom, Position, Segment, Segments
from gateway.ledger.shipped_before import ShippedBefore
from gateway.ledger.sync_watch import SyncWatch
from gateway.ledger.syncing import Syncer, choose_syncer, one_thread

log = logging.getLogger(__name__)
SEGMENT_BYTES = 64 << 20
SPARE_RETRY_SECONDS = 1.0
ORDINARY_INTENT_BYTES = 1024
# Generous bound on what a settlement adds to its intent (counts, cost, attempts with errors); see `_reserve`.
SETTLE_OVERHEAD_BYTES = 4096
DAMAGED = (
    "The journal in %s had %d bytes that are no whole records: dropped; %d whole records behind them are kept. After a "
    "loss of power nothing that was answered is among them. Else its disk is damaged, or does not keep what it says "
    "that it keeps: hold this time against the providers' bills (`breakeven reconcile`)"
)
ENCODER = msgspec.msgpack.Encoder()


class Journal:
    """One directory, one process. Opening a journal recovers it. Use it from one event loop only."""

    segments_class = Segments

    def __init__(
        self,
        disk: Disk,
        *,
        on_failure: Callable[[OSError], None],
        segment_bytes: int = SEGMENT_BYTES,
        clock: Callable[[], float] = time.monotonic,
        syncer: Syncer | None = None,
        file_executor: Executor | None = None,
        framing: Framing | None = None,
        now_us: Callable[[], int] = now_us,
        watch: SyncWatch | None = None,
    ) -> None:
        """Raises OSError when the disk is unusable. `on_failure` is called once, on the event loop, if a sync fails."""
        self._clock = clock
        self._segments = self.segments_class(disk, segment_bytes=segment_bytes, framing=framing or Framing())
        self._is_closed = False
        self._is_preparing = False
        self._spare_refused_at = -SPARE_RETRY_SECONDS
        self._spare_refusal: BaseException | None = None
        self._reserved_bytes = 0
        self._skipped_checkpoints = 0
        self._is_unnoted = False
        self._open = OpenIntents()
        self._age = AgeMarks()
        before = ShippedBefore(now_us())
        try:
            self.recovered = self._recover(before)
        except BaseException:
            self._segments.close()
            raise
        self._file_executor = file_executor or one_thread("journal-file")
        self.commits = GroupCommit(
            self._segments,
            syncer or choose_syncer(self._segments.current.file),
            watch or SyncWatch(),
            on_durable=self._mark_time,
            on_failure=on_failure,
            clock=clock,
        )
        self._shipped = before.end or self._segments.start
        self._shipped_entries = before.entries
        self._mark_time()

    @classmethod
    def open(
        cls, directory: Path, *, on_failure: Callable[[OSError], None], segment_bytes: int = SEGMENT_BYTES
    ) -> "Journal":
        """The journal of a local directory that this process has claimed (see directories.py)."""
        journal = cls(LocalDisk(directory), on_failure=on_failure, segment_bytes=segment_bytes)
        if journal.recovered.discarded_bytes:
            log.warning(DAMAGED, directory, journal.recovered.discarded_bytes, journal.recovered.rescued_records)
        return journal

    def intend(self, intent: Intent) -> None:
        payload = ENCODER.encode(intent)
        self._refuse_if_unusable()
        self._prepare_spare()
        if not self._has_room(len(payload)):
            raise LedgerUnavailable(self._why_no_room())
        position = self._append(Kind.INTENT, intent.request_id, payload)
        self._reserved_bytes += _reserve(len(payload))
        self._open[intent.request_id] = OpenIntent(position.epoch, payload)

    def refusal(self) -> str | None:
        """Why an intent would be refused now, in a sentence; None if it would be accepted. May access the disk.

        Callers that hear a refusal stop sending requests, so this also starts the spare segment as an intent would.
        """
        try:
            self._refuse_if_unusable()
            self._prepare_spare()
            if not self._has_room(ORDINARY_INTENT_BYTES):
                return self._why_no_room()
            self._segments.touch()
        except LedgerUnavailable as error:
            return str(error)
        except OSError as error:
            return _not_written(error)
        return None

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Skipped when the disk is nearly full: a settlement must fit, a checkpoint only narrows an orphan's bounds."""
        self._refuse_if_stopped()
        payload = ENCODER.encode(checkpoint)
        if checkpoint.request_id not in self._open:
            return
        if self._segments.free_bytes < self._reserved_bytes + len(payload) + 512:
            self._skipped_checkpoints += 1
            return
        self._append(Kind.CHECKPOINT, checkpoint.request_id, payload)
        self._open[checkpoint.request_id].checkpoint = payload

    async def settle(self, entry: Entry) -> None:
        """Raises LedgerUnavailable when the entry cannot be made durable, ValueError when its intent is not open."""
        self._refuse_if_stopped()
        if entry.intent.request_id not in self._open:
            raise ValueError(f"request {entry.intent.request_id} has no open intent: never intended, or settled twice")
        self._settle_open(entry)
        await self.commits.committed()

    def open_requests(self) -> Collection[str]:
        """Ids of requests with an intent and no settlement yet."""
        return self._open.keys()

    @property
    def shipped(self) -> Position:
        """Everything before it is in the database."""
        return self._shipped

    @property
    def start(self) -> Position:
        """Where the oldest segment still kept begins."""
        return self._segments.start

    def ship_again(self, position: Position, entries: int) -> None:
        """The database has lost the last `entries` it had taken; resume shipping at `position`, where they begin."""
        self._shipped = position
        self._shipped_entries -= entries
        self._mark_time()

    def read_settled(self, position: Position, until: Position | None = None) -> tuple[Batch, Position]:
        """The next durable entries from `position`, in order, and the position after them. No entries and the same
        position mean the end of the journal, or `until`.

        At most a few hundred entries, so that the event loop is blocked for a millisecond or two. May return none while
        the position advances: more may follow. Raises OSError when a segment cannot be read.
        """
        return self._segments.read_settled(position, until or self.commits.durable)

    async def mark_shipped(self, position: Position, entries: int) -> None:
        """The database durably has everything before `position`: delete the segments that hold nothing else.

        If a request is still open in such a segment, its intent is first written again to a newer one and synced.
        """
        self._shipped = position
        self._shipped_entries += entries
        self._age.shipped(position)
        self._note_shipped(position)
        await self._let_go_before(position)

    def _note_shipped(self, position: Position) -> None:
        """Told and gone on without: the next start then ships again what it does not know of."""
        try:
            self._segments.note_shipped(position)
        except OSError as error:
            if not self._is_unnoted:
                log.warning(
                    "cannot note up to where the ledger is shipped (%s): see that the disk of BREAKEVEN_HOME has room; "
                    "entries are shipped all the same, and some of them once more at the next start",
                    error,
                )
            self._is_unnoted = True
        else:
            self._is_unnoted = False

    async def _let_go_before(self, position: Position) -> None:
        finished = self._segments.before(position)
        if not finished or self.commits.failure:
            return
        last = max(segment.epoch for segment in finished)
        if not self._carry_forward(last):
            return
        await self.commits.committed()
        self._segments.forget(finished)
        await asyncio.get_running_loop().run_in_executor(self._file_executor, self._segments.delete, finished)
        self._spare_refused_at = -SPARE_RETRY_SECONDS

    def _carry_forward(self, last_epoch: int) -> bool:
        """Rewrite the intents still open in segments up to `last_epoch`; False when they do not fit."""
        for request_id, opened in self._open.items():
            if opened.epoch <= last_epoch:
                try:
                    position = self._append(Kind.INTENT, request_id, opened.intent)
                    if opened.checkpoint is not None:
                        self._append(Kind.CHECKPOINT, request_id, opened.checkpoint)
                except LedgerUnavailable:
                    return False
                opened.epoch = position.epoch
        return True

    def gauges(self) -> Mapping[str, float]:
        return {
            "open_intents": len(self._open),
            "unshipped_entries": self.unshipped_entries,
            "unshipped_seconds": self._age.oldest_seconds(self._clock()) if self.unshipped_entries else 0.0,
            "journal_bytes": self._segments.total_bytes,
            "free_bytes": max(self._segments.free_bytes - self._reserved_bytes, 0),
            "skipped_checkpoints": self._skipped_checkpoints,
            "syncs": self.commits.syncs,
            "sync_seconds": self.commits.sync_seconds,
        }

    @property
    def slow_sync_seconds(self) -> float | None:
        """The recent typical duration of a sync, if long enough for callers to notice; else None."""
        pace = self.commits.pace
        return pace.usual_seconds if pace.is_slow else None

    @property
    def unshipped_entries(self) -> int:
        return self._open.settled_entries - self._shipped_entries

    @property
    def has_given_all(self) -> bool:
        """Whether the database has everything that will ever be durable here; a failed sync makes no more durable."""
        return not self.unshipped_entries or (
            self.commits.failure is not None and self._shipped >= self.commits.durable
        )

    def require_synced(self) -> None:
        """Raises LedgerUnavailable if a sync failed, so that a shutdown is not reported as clean."""
        self.commits.require_synced()

    async def aclose(self) -> None:
        """Sync what is written and close the files. Open intents become orphans when the journal is next opened.

        A failing sync is reported to `on_failure` and not raised: the caller has more to close.
        """
        if self._is_closed:
            return
        self._is_closed = True  # from here on nothing may be written that would wait for a sync after the last
        if self.commits.failure is None:
            with contextlib.suppress(LedgerUnavailable):
                await self.commits.committed()
        await self.commits.aclose()
        await asyncio.to_thread(self._file_executor.shutdown)
        await asyncio.sleep(0)  # lets the callback of a just-finished spare segment run before the files close
        self._segments.close()

    def _recover(self, before: ShippedBefore) -> Recovered:
        for epoch, record in self._segments.recover():
            self._open.apply(record, epoch)
            before.apply(record, epoch, self._segments.noted)
        orphans = dict(self._open)
        self._reserved_bytes = sum(_reserve(len(opened.intent)) for opened in orphans.values())
        if self._segments.free_bytes < self._reserved_bytes and not self._segments.has_spare:
            self._segments.keep_spare(self._segments.create_spare())
        for opened in orphans.values():
            self._settle_open(settle_orphan(opened))
        sync_all(self._segments.take_dirty())
        unshipped = self._open.settled_entries - before.entries
        dropped, rescued = self._segments.discarded_bytes, self._segments.rescued_records
        return Recovered(unshipped, tuple(orphans), dropped, rescued)

    def _settle_open(self, entry: Entry) -> None:
        opened = self._open[entry.intent.request_id]
        self._append(Kind.SETTLE, entry.intent.request_id, ENCODER.encode(entry))
        self._reserved_bytes -= _reserve(len(opened.intent))
        self._open.settle(entry.intent.request_id)

    def _append(self, kind: Kind, request_id: str, payload: bytes) -> Position:
        try:
            return self._segments.append(kind, request_id, payload)
        except NoRoom as error:
            raise LedgerUnavailable("The journal's disk is full.") from error
        except OSError as error:
            raise LedgerUnavailable(_not_written(error)) from error

    def _prepare_spare(self) -> None:
        """Create the next segment in the background; after a failure, retry at most once a second."""
        is_wanted = not (self._segments.has_spare or self._is_preparing)
        if is_wanted and self._clock() - self._spare_refused_at >= SPARE_RETRY_SECONDS:
            self._is_preparing = True
            loop = asyncio.get_running_loop()
            loop.run_in_executor(self._file_executor, self._segments.create_spare).add_done_callback(self._keep_spare)

    def _keep_spare(self, created: asyncio.Future[Segment]) -> None:
        self._is_preparing = False
        self._spare_refusal = None if created.cancelled() else created.exception()
        if created.cancelled() or self._spare_refusal is not None:
            self._spare_refused_at = self._clock()
        else:
            self._segments.keep_spare(created.result())

    def _has_room(self, intent_bytes: int) -> bool:
        return self._segments.free_bytes >= self._reserved_bytes + _reserve(intent_bytes) + intent_bytes + 512

    def _why_no_room(self) -> str:
        if self._is_preparing:
            return "The journal's disk is too slow for so many requests at once: try again in a second."
        error = self._spare_refusal
        if isinstance(error, OSError) and error.errno not in (
            errno.ENOSPC,
            errno.EDQUOT,
        ):  # such as too many open files
            return _not_written(error)
        return "The journal's disk is full: make room, or wait until the database takes entries."

    def _refuse_if_stopped(self) -> None:
        self.commits.require_synced()
        if self._is_closed:
            raise LedgerUnavailable("The journal is closed.")

    def _refuse_if_unusable(self) -> None:
        """For what is new: what was accepted waits for the disk."""
        self._refuse_if_stopped()
        if self.commits.is_silent:
            raise LedgerUnavailable("The journal's disk does not answer: nothing new is accepted until it does.")

    def _mark_time(self) -> None:
        if self._shipped < self.commits.durable:
            self._age.reached(self.commits.durable, self._clock())


def _reserve(intent_bytes: int) -> int:
    """Bytes kept free for an open intent: for its settlement, and to carry it forward once."""
    return 2 * intent_bytes + SETTLE_OVERHEAD_BYTES


def _not_written(error: OSError) -> str:
    return f"The journal cannot be written: {error.strerror}"
