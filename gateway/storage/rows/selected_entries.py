"""Reads entries from the database: a query to add conditions to, and its execution."""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.ledger.entry import Entry
from gateway.storage.rows.entry_from_row import Row, entry_from, has_attempt_rows
from gateway.storage.tables.books import attempts, circumstances, dimensions, entries

CHUNK = 300


def entry_select() -> Select[Any]:
    """Entries joined with their dimensions and circumstances; columns have the names in their tables."""
    mine = [column for column in entries.columns if column.name not in ("dimension_id", "circumstance_id")]
    theirs = [column for table in (dimensions, circumstances) for column in list(table.columns)[2:]]
    return (
        select(*mine, *theirs)
        .join(dimensions, dimensions.c.id == entries.c.dimension_id)
        .join(circumstances, circumstances.c.id == entries.c.circumstance_id)
    )


async def read_entries(connection: AsyncConnection, query: Select[Any]) -> list[Entry]:
    """Run a query made from `entry_select`, and fetch the attempts in their own table."""
    return await _with_attempts(connection, [dict(row) for row in (await connection.execute(query)).mappings()])


async def parts_of_entries(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[list[Entry]]:
    """The same in small parts, so that requests on this loop proceed in between."""
    async with connection.stream(query) as result:
        async for some in result.mappings().partitions(CHUNK):
            yield await _with_attempts(connection, [dict(row) for row in some])


async def _with_attempts(connection: AsyncConnection, rows: list[Row]) -> list[Entry]:
    tries: dict[bytes, list[Row]] = {}
    tried = [row for row in rows if has_attempt_rows(row)]
    for start in range(0, len(tried), CHUNK):
        some = tried[start : start + CHUNK]
        times = [row["accepted_at_us"] for row in some]
        # With (id, time) pairs SQLite would scan the whole table. The times tell PostgreSQL which partitions to read.
        wanted = attempts.c.request_id.in_([row["request_id"] for row in some])
        near = attempts.c.accepted_at_us.between(min(times), max(times))
        found = await connection.execute(select(attempts).where(wanted, near).order_by(attempts.c.number))
        for row in found.mappings():
            tries.setdefault(bytes(row["request_id"]), []).append(dict(row))
    return [entry_from(row, tries.get(bytes(row["request_id"]), ())) for row in rows]
