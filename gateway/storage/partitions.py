"""Entries by month: partitions on PostgreSQL, ranges on SQLite. Old months are dropped; the hourly sums stay."""

from collections.abc import Iterable
from datetime import UTC, datetime

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import microseconds, moment_of
from gateway.storage.database import SCHEMA_LOCK, lock, writing
from gateway.storage.tables.books import attempts, entries
from gateway.storage.tables.content import request_bodies

PARTITIONED = (entries, attempts)
DELETE_STEP_US = 3_600_000_000
DELETE_BODIES = 1000
DROP_WAITS_SECONDS = 5


def month_of(at_us: int) -> tuple[int, int]:
    moment = moment_of(at_us)
    return moment.year, moment.month


def month_bounds(year: int, month: int) -> tuple[int, int]:
    """The month's first microsecond, and the next month's."""
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    first, after = datetime(year, month, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)
    return microseconds(first), microseconds(after)


class Partitions:
    """Creates partitions before they are needed; remembers which exist."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._present: set[tuple[int, int]] = set()

    async def ensure(self, moments_us: Iterable[int]) -> None:
        """Uses its own transaction, which neither blocks readers and writers of the table nor waits for them."""
        missing = {month_of(at_us) for at_us in moments_us} - self._present
        if not missing:
            return
        if self._engine.dialect.name == "postgresql":
            async with writing(self._engine) as connection:
                await lock(connection, SCHEMA_LOCK)
                for year, month in sorted(missing):
                    for table in PARTITIONED:
                        await _make_partition(connection, table.name, year, month)
        self._present |= missing

    def forget(self) -> None:
        """Clear the cache: another process may have dropped partitions."""
        self._present.clear()

    async def months_before(self, before_us: int) -> list[str]:
        """The months that `drop_before` would drop, as 2026-01."""
        async with self._engine.connect() as connection:
            if self._engine.dialect.name == "postgresql":
                return [_name(*month) for month in await _partitions_before(connection, before_us)]
            found: list[str] = []
            end, _ = month_bounds(*month_of(before_us))
            start = 0
            later = select(func.min(entries.c.accepted_at_us))
            while at_us := await connection.scalar(later.where(entries.c.accepted_at_us.between(start, end - 1))):
                found.append(_name(*month_of(at_us)))
                _, start = month_bounds(*month_of(at_us))
            return found

    async def drop_before(self, before_us: int) -> list[str]:
        """Delete the individual requests of every month that ended by `before_us`; returns the months, as 2026-01.

        PostgreSQL drops partitions, which is instant. SQLite deletes an hour of traffic at a time, so that the shipper
        gets a turn; the file does not shrink, but its pages are reused.
        """
        if self._engine.dialect.name == "postgresql":
            return await self._drop_partitions(before_us)
        end, _ = month_bounds(*month_of(before_us))
        return await self._delete_before(end)

    async def _drop_partitions(self, before_us: int) -> list[str]:
        async with writing(self._engine) as connection:
            await lock(connection, SCHEMA_LOCK)
            # Others queue behind a drop that is itself waiting, for a running backup, say.
            await connection.execute(text(f"SET LOCAL lock_timeout = '{DROP_WAITS_SECONDS}s'"))
            months = await _partitions_before(connection, before_us)
            for year, month in months:
                for table in PARTITIONED:
                    await connection.execute(text(f"DROP TABLE {table.name}_{year:04d}_{month:02d}"))
        self._present -= set(months)
        return [_name(*month) for month in months]

    async def _delete_before(self, end_us: int) -> list[str]:
        gone: set[tuple[int, int]] = set()
        while True:
            async with writing(self._engine) as connection:
                oldest = (await connection.execute(text("SELECT min(accepted_at_us) FROM entries"))).scalar()
                if oldest is None or oldest >= end_us:
                    return [_name(*month) for month in sorted(gone)]
                until = min(oldest - oldest % DELETE_STEP_US + DELETE_STEP_US, end_us)
                for table in PARTITIONED:
                    await connection.execute(delete(table).where(table.c.accepted_at_us < until))
            gone.add(month_of(oldest))


async def _make_partition(connection: AsyncConnection, table: str, year: int, month: int) -> None:
    """Create unless it exists. Attached afterwards, because CREATE ... PARTITION OF locks out all readers."""
    name = f"{table}_{year:04d}_{month:02d}"
    if await connection.scalar(text("SELECT to_regclass(:name)"), {"name": name}) is not None:
        return
    start, end = month_bounds(year, month)
    await connection.execute(text(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)"))
    # Ranges take no bind parameters; these are our own integers.
    await connection.execute(text(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({start}) TO ({end})"))


async def _partitions_before(connection: AsyncConnection, before_us: int) -> list[tuple[int, int]]:
    """PostgreSQL's partitions of months that ended by `before_us`, oldest first."""
    names = await connection.execute(
        text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'entries'::regclass")
    )
    months = sorted((int(name[-7:-3]), int(name[-2:])) for name in names.scalars())
    return [month for month in months if month_bounds(*month)[1] <= before_us]


def _name(year: int, month: int) -> str:
    return f"{year:04d}-{month:02d}"


async def bodies_before(engine: AsyncEngine, before_us: int) -> int:
    """How many `drop_bodies_before` would delete."""
    old = select(func.count()).select_from(request_bodies).where(request_bodies.c.stored_at_us < before_us)
    async with engine.connect() as connection:
        return (await connection.execute(old)).scalar_one()


async def drop_bodies_before(engine: AsyncEngine, before_us: int) -> int:
    """Delete stored prompts and answers older than `before_us` in batches; returns how many."""
    old = select(request_bodies.c.request_id).where(request_bodies.c.stored_at_us < before_us).limit(DELETE_BODIES)
    dropped = 0
    while True:
        async with writing(engine) as connection:
            gone = await connection.execute(delete(request_bodies).where(request_bodies.c.request_id.in_(old)))
        dropped += gone.rowcount
        if gone.rowcount < DELETE_BODIES:
            return dropped
