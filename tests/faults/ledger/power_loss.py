"""A journal on a simulated disk with random work, syncs and power losses; raises AssertionError for a broken
promise."""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

from gateway.errors import LedgerUnavailable
from gateway.ledger.batch import DECODER
from gateway.ledger.disk import Disk, DiskFile
from gateway.ledger.entry import Entry, Status
from gateway.ledger.journal import Journal
from gateway.ledger.record import Framing, Kind, Record
from gateway.ledger.shipper import Shipper
from gateway.ledger.syncing import QueueSyncer, Syncer, ThreadSyncer
from tests.simulated_disk import SimulatedDisk
from tests.unit.gateway.ledger.builders import make_checkpoint, tiny_entry

SEGMENT_BYTES = 1 << 15
WORK = ("intend", "intend", "settle", "settle", "checkpoint", "sync", "sync", "file", "ship")
MakeJournal = Callable[..., Journal]


class SteppedExecutor(Executor):
    """Runs its tasks one by one when the simulation says so, which thereby chooses every interleaving."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.append((future, lambda: fn(*args, **kwargs)))
        return future

    def step(self) -> None:
        if not self._queue:
            return
        future, call = self._queue.popleft()
        try:
            future.set_result(call())
        except OSError as error:
            future.set_exception(error)


class SteppedQueue:
    """A thread that syncs one file when the simulation says so, and then makes its descriptor readable."""

    def __init__(self) -> None:
        self._bell, self._rope = os.pipe()
        os.set_blocking(self._bell, False)
        self._file: DiskFile | None = None
        self._error: OSError | None = None

    def fileno(self) -> int:
        return self._bell

    def submit(self, file: DiskFile) -> None:
        assert self._file is None, "two syncs at once"
        self._file = file

    def step(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.sync()
        except OSError as error:
            self._error = error
        os.write(self._rope, b"!")

    def take(self) -> bool:
        try:
            os.read(self._bell, 1)
        except BlockingIOError:
            return False
        if self._error is not None:
            raise self._error
        return True

    def close(self) -> None:
        os.close(self._bell)
        os.close(self._rope)


class Background:
    """Background work, each step of which runs when the simulation says so: syncs by a thread of C++ or of
    Python, and file operations."""

    def __init__(self, *, is_native: bool) -> None:
        self.files = SteppedExecutor()
        self._queue = SteppedQueue() if is_native else None
        self._thread = SteppedExecutor()
        self.syncer: Syncer = QueueSyncer(self._queue) if self._queue else ThreadSyncer(self._thread)

    def step_sync(self) -> None:
        (self._queue or self._thread).step()

    def end(self) -> None:
        """Ends everything, as when the process dies."""
        if self._queue is not None:
            asyncio.get_running_loop().remove_reader(self._queue.fileno())
            self._queue.close()


class Database:
    """Stores the first entry of a request, like the real one, and survives everything."""

    def __init__(self) -> None:
        self.rows: dict[str, Entry] = {}

    async def insert(self, batch: Sequence[Entry]) -> int:
        before = len(self.rows)
        for entry in batch:
            self.rows.setdefault(entry.intent.request_id, entry)
        return len(self.rows) - before


class Simulation:
    """One seed: a few lives of one journal, each ended by power loss, and the accounting of what it promised.

    With even seeds a thread of C++ syncs, with odd ones one of Python.
    """

    def __init__(
        self,
        seed: int,
        *,
        make_journal: MakeJournal = Journal,
        framing: Framing | None = None,
        work: Sequence[str] = WORK,
    ) -> None:
        self.work = work
        self.is_native = seed % 2 == 0
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(random.Random(seed + 1))
        self.see_disk: Callable[[Disk], Disk] = lambda disk: disk
        self.make_journal = make_journal
        self.framing = framing or Framing()
        self.database = Database()
        self.sent: dict[str, Entry] = {}
        self.acknowledged: set[str] = set()
        self.gone: set[str] = set()
        self.lives = 0
        self.dropped_bytes = 0
        self.failures: list[OSError] = []

    async def run(self, lives: int = 4, steps: int = 40, *, fail_sync: bool = False) -> None:
        for _ in range(lives):
            if fail_sync:
                self.disk.fail_sync_at = self.disk.syncs + self.chance.randrange(3, 12)
            await self._live(steps)
        self.disk.fail_sync_at = None
        background = Background(is_native=self.is_native)
        await self._ship(self._open(background), background)
        background.end()
        self._check_database()

    async def _live(self, steps: int) -> None:
        background = Background(is_native=self.is_native)
        self.lives += 1
        try:
            await self._work(background, self.chance.randrange(steps))
        finally:
            background.end()
            self.disk.restart()

    async def _work(self, background: Background, steps: int) -> None:
        try:
            journal = self._open(background)
        except OSError:
            # The sync failed during recovery: the process does not start, and is started again.
            self.disk.lose_power()
            return
        under_way: list[asyncio.Task[None]] = []
        for _ in range(steps):
            try:
                await self._step(journal, background, under_way)
            except LedgerUnavailable:
                break
        if self.chance.random() < 0.7:  # otherwise only the process dies; the kernel's cache remains
            self.disk.lose_power()
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _step(self, journal: Journal, background: Background, under_way: list[asyncio.Task[None]]) -> None:
        opened = list(journal.open_requests())
        match self.chance.choice(self.work):
            case "intend":
                entry = tiny_entry(len(self.sent) + 1)
                self.sent[entry.intent.request_id] = entry
                journal.intend(entry.intent)
            case "settle" if opened:
                under_way.append(asyncio.create_task(self._settle(journal, self.chance.choice(opened))))
            case "checkpoint" if opened:
                journal.checkpoint(make_checkpoint(int(self.chance.choice(opened), 16)))
            case "sync":
                background.step_sync()
            case "file":
                background.files.step()
            case "ship" if self.chance.random() < 0.2:
                await self._ship(journal, background)
            case _:
                pass
        for _ in range(4):
            await asyncio.sleep(0)

    async def _settle(self, journal: Journal, request_id: str) -> None:
        try:
            await journal.settle(self.sent[request_id])
        except LedgerUnavailable:
            return
        self.acknowledged.add(request_id)

    async def _ship(self, journal: Journal, background: Background) -> None:
        shipping = asyncio.create_task(Shipper(journal, self.database).ship_once())
        for _ in range(60):
            background.step_sync()
            background.files.step()
            await asyncio.sleep(0)
        if shipping.done():
            shipping.result()
        else:  # a failed sync: what waits for it never completes
            shipping.cancel()

    def _open(self, background: Background) -> Journal:
        journal = self.make_journal(
            self.see_disk(self.disk),
            on_failure=self.failures.append,
            segment_bytes=SEGMENT_BYTES,
            syncer=background.syncer,
            file_executor=background.files,
            framing=self.framing,
        )
        self.dropped_bytes += journal.recovered.discarded_bytes
        self._check_recovery(journal)
        return journal

    def _check_recovery(self, journal: Journal) -> None:
        settled: list[str] = []
        seen: set[str] = set()
        for record in self._records():
            seen.add(record.request_id)
            if record.kind is Kind.SETTLE:
                self._check_entry(DECODER.decode(record.payload))
                settled.append(record.request_id)
        assert len(settled) == len(set(settled)), "a request was settled twice"
        assert not list(journal.open_requests()), "a request is still open after recovery"
        lost = self.acknowledged - set(settled) - self.database.rows.keys()
        assert not lost, f"{len(lost)} acknowledged settlements were lost"
        returned = self.gone & seen
        assert not returned, f"{len(returned)} requests that were lost came back"
        self.gone |= self.sent.keys() - seen - self.database.rows.keys()

    def _records(self) -> Iterator[Record]:
        for name in sorted(self.disk.names()):
            file = self.disk.open(name)
            yield from self.framing.scan(int(name[:16]), file.read(0, file.size))

    def _check_entry(self, entry: Entry) -> None:
        assert entry.intent.request_id in self.sent, "an entry came from nowhere"
        sent = self.sent[entry.intent.request_id]
        assert entry.intent == sent.intent, "an intent came back changed"
        if entry.status is Status.orphaned:
            assert entry.cost is None
            assert entry.cost_lower_pico_usd in (0, make_checkpoint().cost_so_far_pico_usd)
            assert entry.cost_upper_pico_usd == sent.intent.cost_bound_pico_usd
        else:
            assert entry == sent, "an entry came back changed"

    def _check_database(self) -> None:
        for request_id in self.acknowledged:
            assert self.database.rows.get(request_id) == self.sent[request_id], (
                "what was acknowledged is not what is booked"
            )
        for entry in self.database.rows.values():
            self._check_entry(entry)
