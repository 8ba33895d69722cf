"""The ledger's cost per request: durable throughput, and the time added at a fixed rate, beside alternatives."""

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.ledger.traffic import make_entries, renumbered
from gateway.ledger.disk import DiskFile, LocalDisk
from gateway.ledger.entry import Entry
from gateway.ledger.journal import Journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.ledger.syncing import Done, Syncer, choose_syncer
from gateway.storage.database import migrate, open_database
from gateway.storage.sql.ledger import SqlLedger

RATE = 2000
IN_FLIGHT = (16, 64, 256)
ANSWER_SECONDS = 0.005


def stop(error: OSError) -> None:
    raise SystemExit(f"the journal's disk failed: {error}")


class JournalBook:
    """Ours: intent before, durable settlement after."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def begin(self, entry: Entry) -> None:
        self._journal.intend(entry.intent)

    async def end(self, entry: Entry) -> None:
        await self._journal.settle(entry)


class QueueBook:
    """An in-memory queue, written later: it loses rows in a crash."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []

    def begin(self, entry: Entry) -> None:
        pass

    async def end(self, entry: Entry) -> None:
        self.rows.append(msgspec.msgpack.encode(entry))


class InsertBook:
    """One durable INSERT per request, into the same tables."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger

    def begin(self, entry: Entry) -> None:
        pass

    async def end(self, entry: Entry) -> None:
        await self._ledger.insert([entry])


class HandOffBook:
    """Stores nothing: each request only goes to another thread and back, as any wait for a disk must."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)

    def begin(self, entry: Entry) -> None:
        pass

    async def end(self, entry: Entry) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, int)


Book = JournalBook | QueueBook | InsertBook | HandOffBook


class TimedSyncer:
    """The syncer that the journal would use here, which also records how long each group took."""

    def __init__(self, inner: Syncer) -> None:
        self._inner = inner
        self.milliseconds: list[float] = []

    def start(self, files: Sequence[DiskFile], done: Done) -> None:
        started = time.perf_counter()

        def ended(error: OSError | None) -> None:
            self.milliseconds.append((time.perf_counter() - started) * 1000)
            done(error)

        self._inner.start(files, ended)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def closed_loop(book: Book, entries: Sequence[Entry], in_flight: int) -> float:
    """Requests per second with this many always in flight."""
    waiting = iter(entries)

    async def worker() -> None:
        for entry in waiting:
            book.begin(entry)
            await book.end(entry)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return len(entries) / (time.perf_counter() - started)


async def open_loop(book: Book, entries: Sequence[Entry], rate: float) -> list[float]:
    """Milliseconds that the book adds to each request with random arrivals at `rate`; sorted."""
    chance = random.Random(2)
    took: list[float] = []

    async def one(entry: Entry) -> None:
        started = time.perf_counter()
        book.begin(entry)
        begun = time.perf_counter() - started
        await asyncio.sleep(ANSWER_SECONDS)  # the model answers
        started = time.perf_counter()
        await book.end(entry)
        took.append((begun + time.perf_counter() - started) * 1000)

    async with asyncio.TaskGroup() as group:
        due = time.perf_counter()
        for entry in entries:
            due += chance.expovariate(rate)
            if (wait := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            group.create_task(one(entry))
    return sorted(took)


def percentiles(milliseconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(milliseconds)
    return {name: round(ordered[int(len(ordered) * share)], 3) for name, share in (("p50", 0.5), ("p99", 0.99))}


async def measure_requests(directory: Path, count: int) -> dict[str, Any]:
    """Durable throughput and added latency, with their alternatives."""
    entries = make_entries(count)
    results: dict[str, Any] = {"disk_sync_milliseconds": measure_disk(directory)}
    syncer = TimedSyncer(syncer_of(directory))
    journal = Journal(LocalDisk(directory / "journal"), on_failure=stop, syncer=syncer)
    await closed_loop(JournalBook(journal), make_entries(200), 16)  # warm-up: the first megabytes of a segment
    results["durable_settlements_per_second"] = {
        str(in_flight): round(await closed_loop(JournalBook(journal), renumbered(entries, in_flight), in_flight))
        for in_flight in IN_FLIGHT
    }
    results |= await measure_added(directory, journal, syncer, entries)
    await journal.aclose()
    results["in_memory_queue_per_second"] = round(await closed_loop(QueueBook(), entries, 64))
    await migrate(url := f"sqlite+aiosqlite:///{directory / 'inserts.db'}")
    engine = open_database(url)
    few = entries[: max(count // 50, 200)]
    # One at a time: SQLite has one writer, and others would only wait for its lock.
    results["one_insert_per_request_per_second"] = round(await closed_loop(InsertBook(SqlLedger(engine)), few, 1))
    await engine.dispose()
    return results


async def measure_added(
    directory: Path, journal: Journal, syncer: TimedSyncer, entries: Sequence[Entry]
) -> dict[str, Any]:
    """At 2,000 requests a second, with shipping in the background; and what the sync and two hand-offs take of it."""
    await migrate(url := f"sqlite+aiosqlite:///{directory / 'shipped.db'}")
    sink = RemoteSink(url)
    shipper = Shipper(journal, sink)
    await shipper.drain(600)
    shipping, lag = asyncio.create_task(shipper.run()), Lag(shipper)
    watching = asyncio.create_task(lag.watch())
    syncer.milliseconds.clear()
    ours = await open_loop(JournalBook(journal), renumbered(entries, 3), RATE)
    for task in (shipping, watching):
        task.cancel()
    await asyncio.gather(shipping, watching, return_exceptions=True)
    await sink.aclose()
    return {
        "added_milliseconds_at_2000_per_second": {
            "journal": percentiles(ours),
            "in-memory queue": percentiles(await open_loop(QueueBook(), entries, RATE)),
            "a thread and back, no disk": percentiles(await open_loop(HandOffBook(), entries, RATE)),
        },
        "sync_milliseconds_meanwhile": percentiles(syncer.milliseconds),
        "settlements_per_sync": round(len(entries) / len(syncer.milliseconds), 1),
        "largest_lag_seconds": round(lag.largest, 2),
    }


def syncer_of(directory: Path) -> Syncer:
    """The syncer that a journal in this directory would choose."""
    file = LocalDisk(directory / "probe").open("probe.seg")
    try:
        return choose_syncer(file)
    finally:
        file.close()


def measure_disk(directory: Path) -> dict[str, float]:
    """How long one sync of 4 kB takes here: no durable ledger can add less to a request."""
    disk = LocalDisk(directory / "probe")
    disk.create("probe.seg", 1 << 20, is_urgent=lambda: True)
    file = disk.open("probe.seg")
    took: list[float] = []
    for place in range(256):
        file.write(place * 4096, b"x" * 4096)
        started = time.perf_counter()
        file.sync()
        took.append((time.perf_counter() - started) * 1000)
    file.close()
    return percentiles(took)


class Lag:
    """Records the longest time that an entry waited for the database."""

    def __init__(self, shipper: Shipper) -> None:
        self._shipper = shipper
        self.largest = 0.0

    async def watch(self) -> None:
        while True:
            self.largest = max(self.largest, self._shipper.gauges()["unshipped_seconds"])
            await asyncio.sleep(0.05)
