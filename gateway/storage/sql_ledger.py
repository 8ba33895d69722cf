"""The shipped half of the ledger: entries into the database, each once, with their hourly sums; and back as entries."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Select, Table, Update, and_, bindparam, or_, select, text, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.ledger.entry import Entry
from gateway.storage.database import writing
from gateway.storage.entry_rows import EntryRows, Row, entry_from, entry_rows, has_attempt_rows
from gateway.storage.interned import Interned, insert_or_ignore
from gateway.storage.paid_parts import paid_parts
from gateway.storage.partitions import Partitions
from gateway.storage.rollup import SKETCHES, SUMS, Rows, by_day, roll_up
from gateway.storage.sketch import compact
from gateway.storage.tables import attempts, circumstances, daily, dimensions, entries, hourly

PAGE = 1000
CHUNK = 300
YIELD_EVERY = 32
ENTRY_COLUMNS = tuple(column.name for column in entries.columns)
KNOWN = select(entries.c.request_id).where(entries.c.request_id.in_(bindparam("numbers", expanding=True)))
SQLITE_INSERT = f"INSERT INTO entries ({', '.join(ENTRY_COLUMNS)}) VALUES ({', '.join('?' * len(ENTRY_COLUMNS))})"


class SqlLedger:
    """An EntrySink, and the way back."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._dimensions = Interned(dimensions)
        self._circumstances = Interned(circumstances)
        self.partitions = Partitions(engine)

    async def insert(self, batch: Sequence[Entry]) -> int:
        """One durable transaction: the entries that are new, their attempts, their hourly sums. Returns how many."""
        first = {entry.intent.request_id: entry for entry in reversed(batch)}
        if not first:
            return 0
        rows: dict[bytes, tuple[Entry, EntryRows]] = {}
        for number, entry in sorted(first.items()):
            rows[bytes.fromhex(number)] = (entry, entry_rows(entry))
            if len(rows) % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # requests wait on this loop too
        await self.partitions.ensure(entry.intent.accepted_at_us for entry in first.values())
        try:
            return await self._insert_rows(rows)
        except BaseException:
            self.partitions.forget()  # retention may have dropped a month that was there: the next try makes it again
            raise

    async def _insert_rows(self, rows: Mapping[bytes, tuple[Entry, EntryRows]]) -> int:
        async with writing(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                await connection.execute(text("SET LOCAL synchronous_commit = on"))
            wanted = [one.dimension for _, one in rows.values()]
            wanted += [part.dimension for entry, _ in rows.values() for part in paid_parts(entry)]
            dimension_ids = await self._dimensions.ids(connection, wanted)
            circumstance_ids = await self._circumstances.ids(connection, (one.circumstance for _, one in rows.values()))
            new = await self._insert_new(connection, [one for _, one in rows.values()], dimension_ids, circumstance_ids)
            booked = [(dimension_ids[one.dimension], entry, one.row) for entry, one in (rows[number] for number in new)]
            await add_to_rollups(connection, roll_up(booked, dimension_ids.__getitem__))
        self._dimensions.remember(dimension_ids)
        self._circumstances.remember(circumstance_ids)
        return len(new)

    @staticmethod
    async def _insert_new(
        connection: AsyncConnection,
        all_rows: Sequence[EntryRows],
        dimension_ids: dict[tuple[object, ...], int],
        circumstance_ids: dict[tuple[object, ...], int],
    ) -> list[bytes]:
        for one in all_rows:
            one.row["dimension_id"] = dimension_ids[one.dimension]
            one.row["circumstance_id"] = circumstance_ids[one.circumstance]
        if connection.dialect.name == "postgresql":
            new = await _copy_into_postgres(connection, [one.row for one in all_rows])
        else:
            new = await _insert_into_sqlite(connection, [one.row for one in all_rows])
        is_new = set(new)
        tries = [attempt for one in all_rows if one.row["request_id"] in is_new for attempt in one.attempts]
        if tries:
            await connection.execute(insert_or_ignore(connection, attempts), tries)
        return new

    async def get(self, request_id: str) -> Entry | None:
        """One entry with its attempts; None when it is not there (yet)."""
        try:
            number = bytes.fromhex(request_id)
        except ValueError:
            return None
        found = await self.select(entry_select().where(entries.c.request_id == number))
        return found[0] if found else None

    async def select(self, query: Select[Any]) -> list[Entry]:
        """The entries of a query made from `entry_select`, in its order."""
        async with self._engine.connect() as connection:
            return await read_entries(connection, query)

    async def entries(
        self, since_us: int, until_us: int, *, page: int = PAGE, after: tuple[int, str] | None = None
    ) -> AsyncIterator[list[Entry]]:
        """Pages of entries accepted in [since_us, until_us), in time order; `after` is the last one seen."""
        order = (entries.c.accepted_at_us, entries.c.request_id)
        last = (after[0], bytes.fromhex(after[1])) if after else (since_us - 1, b"\xff" * 16)
        while True:
            query = (
                entry_select()
                .where(entries.c.accepted_at_us >= max(since_us, last[0]), entries.c.accepted_at_us < until_us)
                .where(
                    or_(
                        entries.c.accepted_at_us > last[0],
                        and_(entries.c.accepted_at_us == last[0], entries.c.request_id > last[1]),
                    )
                )
                .order_by(*order)
                .limit(page)
            )
            found = await self.select(query)
            if found:
                yield found
            if len(found) < page:
                return
            last = (found[-1].intent.accepted_at_us, bytes.fromhex(found[-1].intent.request_id))


async def _insert_into_sqlite(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """Look, then insert: this transaction holds the only write lock. By the driver: a third of the CPU time."""
    present: set[bytes] = set()
    for start in range(0, len(rows), CHUNK):
        numbers = [row["request_id"] for row in rows[start : start + CHUNK]]
        known = await connection.execute(KNOWN, {"numbers": numbers})
        present |= {bytes(number) for number in known.scalars()}
    new = [row for row in rows if row["request_id"] not in present]
    if new:
        await connection.exec_driver_sql(SQLITE_INSERT, [tuple(row[name] for name in ENTRY_COLUMNS) for row in new])
    return [row["request_id"] for row in new]


async def _copy_into_postgres(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> list[bytes]:
    """COPY into a temporary table, in this transaction, and from there what is new."""
    # With its defaults: a newer replica may have added columns that this one does not know.
    await connection.execute(
        text("CREATE TEMPORARY TABLE IF NOT EXISTS incoming (LIKE entries INCLUDING DEFAULTS) ON COMMIT DELETE ROWS")
    )
    driver: Any = (await connection.get_raw_connection()).driver_connection
    records = [tuple(row[name] for name in ENTRY_COLUMNS) for row in rows]
    await driver.copy_records_to_table("incoming", records=records, columns=ENTRY_COLUMNS)
    columns = ", ".join(ENTRY_COLUMNS)
    found = await connection.execute(
        text(
            f"INSERT INTO entries ({columns}) SELECT {columns} FROM incoming "
            "ON CONFLICT DO NOTHING RETURNING request_id"
        )
    )
    return [bytes(number) for number in found.scalars()]


def entry_select() -> Select[Any]:
    """Entries joined with what they refer to; every column is named as in its table."""
    mine = [column for column in entries.columns if column.name not in ("dimension_id", "circumstance_id")]
    theirs = [column for table in (dimensions, circumstances) for column in list(table.columns)[2:]]
    return (
        select(*mine, *theirs)
        .join(dimensions, dimensions.c.id == entries.c.dimension_id)
        .join(circumstances, circumstances.c.id == entries.c.circumstance_id)
    )


async def read_entries(connection: AsyncConnection, query: Select[Any]) -> list[Entry]:
    """Run a query made from `entry_select`, and fetch the attempts that are kept apart."""
    rows: list[Row] = [dict(row) for row in (await connection.execute(query)).mappings()]
    tries: dict[bytes, list[Row]] = {}
    keys = [(row["request_id"], row["accepted_at_us"]) for row in rows if has_attempt_rows(row)]
    for start in range(0, len(keys), CHUNK):
        wanted = tuple_(attempts.c.request_id, attempts.c.accepted_at_us).in_(keys[start : start + CHUNK])
        found = await connection.execute(select(attempts).where(wanted).order_by(attempts.c.number))
        for row in found.mappings():
            tries.setdefault(bytes(row["request_id"]), []).append(dict(row))
    return [entry_from(row, tries.get(bytes(row["request_id"]), ())) for row in rows]


async def add_to_rollups(connection: AsyncConnection, hours: Rows) -> None:
    """Add sums of hours to both rollups."""
    if hours:
        await _add(connection, hourly, hours)
        await _add(connection, daily, by_day(hours))


async def _add(connection: AsyncConnection, table: Table, rows: Rows) -> None:
    """Add sums and merge sketches. The first statement locks the rows, in the order of `rows`."""
    unit, statements = table.columns[0].name, _rollup_statements(table, connection.dialect.name)
    nothing = dict.fromkeys(SKETCHES, b"")
    values = [{unit: at, "dimension_id": number, **row, **nothing} for (at, number), row in rows.items()]
    await connection.execute(statements.add, values)
    sketched = [key for key, row in rows.items() if any(row[name] for name in SKETCHES)]
    merged: list[dict[str, Any]] = []
    for start in range(0, len(sketched), CHUNK):
        for row in await connection.execute(statements.sketches, {"keys": sketched[start : start + CHUNK]}):
            [at, number, *present] = tuple(row)
            fresh = [rows[at, number][name] for name in SKETCHES]
            both = [compact(bytes(old) + new) for old, new in zip(present, fresh, strict=True)]
            merged.append({"at": at, "of": number, **dict(zip(SKETCHES, both, strict=True))})
    if merged:
        await connection.execute(statements.merge, merged)


class _RollupStatements(NamedTuple):
    """Of one rollup: to add sums to rows, to read the sketches of some `keys`, and to write one row's."""

    add: Any
    sketches: Select[Any]
    merge: Update


@cache
def _rollup_statements(table: Table, dialect: str) -> _RollupStatements:
    """Built once: for a small batch, building them takes longer than running them."""
    unit = table.columns[0]
    insert: Any = (postgresql if dialect == "postgresql" else sqlite).insert(table)
    sums = {name: table.c[name] + insert.excluded[name] for name in SUMS}
    keys = tuple_(unit, table.c.dimension_id).in_(bindparam("keys", expanding=True))
    place = (unit == bindparam("at"), table.c.dimension_id == bindparam("of"))
    return _RollupStatements(
        insert.on_conflict_do_update(index_elements=[unit.name, "dimension_id"], set_=sums),
        select(unit, table.c.dimension_id, *(table.c[name] for name in SKETCHES)).where(keys),
        table.update().where(*place).values({name: bindparam(name) for name in SKETCHES}),
    )
