"""Builds indexes of PostgreSQL's partitioned tables month by month, without blocking reads or writes.

A migration creates such an index on the parent only (`CREATE INDEX ... ON ONLY`), which reads no rows. Later months
have it from the start; existing ones get it here. SQLite has no partitions: nothing to do.
"""

import logging
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.storage.database import PATIENT_MS, get_out_of_the_way, writing
from gateway.storage.partitions import PARTITIONED

log = logging.getLogger(__name__)
LACKING = """
SELECT parent.relname AS whole, month.relname AS partition, pg_get_indexdef(parent.oid) AS definition
FROM pg_index AS made
JOIN pg_class AS parent ON parent.oid = made.indexrelid AND parent.relkind = 'I'
JOIN pg_inherits AS months ON months.inhparent = made.indrelid
JOIN pg_class AS month ON month.oid = months.inhrelid
WHERE made.indrelid = ANY (CAST(CAST(:tables AS text[]) AS regclass[]))
AND NOT EXISTS (
    SELECT FROM pg_inherits AS attached JOIN pg_index AS own ON own.indexrelid = attached.inhrelid
    WHERE attached.inhparent = parent.oid AND own.indrelid = month.oid
)
ORDER BY month.relname DESC, parent.relname
"""


class Lacking(NamedTuple):
    """A month's partition that lacks an index of its table."""

    whole: str
    partition: str
    definition: str

    @property
    def part(self) -> str:
        """The name of the partition's index."""
        table = self.partition[: -len("_2026_01")]
        return f"{self.partition}_{self.whole.removeprefix(f'ix_{table}_')}"


async def build_partition_indexes(engine: AsyncEngine) -> None:
    """Newest month first. `engine` must have the timeouts of a migration; must not run twice at the same time."""
    if engine.dialect.name != "postgresql":
        return
    for one in await lacking_parts(engine):
        log.info("building %s of %s, beside whoever reads and writes", one.whole, one.partition)
        await _build(engine, one)
        await get_out_of_the_way(lambda one=one: _attach(engine, one), f"the index {one.whole} of {one.partition}")


async def lacking_parts(engine: AsyncEngine) -> list[Lacking]:
    """What `build_partition_indexes` would build, in order."""
    async with engine.connect() as connection:
        rows = await connection.execute(text(LACKING), {"tables": [table.name for table in PARTITIONED]})
        return [Lacking(*row) for row in rows]


async def _build(engine: AsyncEngine, one: Lacking) -> None:
    """Build unless a valid one exists: a killed build leaves an invalid index, and may continue for a while."""
    async with writing(engine) as connection:
        # Waits for a build still running there, without blocking readers or writers.
        await connection.execute(text(f"LOCK TABLE {one.partition} IN SHARE UPDATE EXCLUSIVE MODE"))
        is_valid = await _is_valid(connection, one.part)
    async with engine.connect() as plain:
        connection = await plain.execution_options(isolation_level="AUTOCOMMIT")
        if is_valid is False:
            await connection.execute(text(f"DROP INDEX CONCURRENTLY {one.part}"))
        if not is_valid:
            of_what = one.definition.partition(" USING ")[2]
            await connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {one.part} ON {one.partition} USING {of_what}")


async def _is_valid(connection: AsyncConnection, part: str) -> bool | None:
    """None: the index does not exist."""
    asked = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:part)")
    return (await connection.execute(asked, {"part": part})).scalar_one_or_none()


async def _attach(engine: AsyncEngine, one: Lacking) -> None:
    async with writing(engine) as connection:
        await connection.execute(text(f"SET LOCAL lock_timeout = {PATIENT_MS}"))
        await connection.execute(text(f"ALTER INDEX {one.whole} ATTACH PARTITION {one.part}"))
