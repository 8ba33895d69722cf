"""The shipped half of the ledger: writes entries to the database, each once, with their hourly sums, and reads them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from sqlalchemy import Select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.ledger.entry import Entry
from gateway.storage.database import writing
from gateway.storage.partitions import Partitions
from gateway.storage.row_writer import RowWriter, once_each
from gateway.storage.rows.entry_rows import EntryRows, entry_rows
from gateway.storage.rows.selected_entries import entry_select, read_entries
from gateway.storage.tables.books import entries

PAGE = 1000
YIELD_EVERY = 32


class SqlLedger:
    """An EntrySink that can also read entries back."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._writer = RowWriter()
        self.partitions = Partitions(engine)

    async def insert(self, batch: Sequence[Entry]) -> int:
        """Inserts new entries, their attempts and their sums in one durable transaction; returns how many were new."""
        rows: list[EntryRows] = []
        for entry in once_each(batch):
            rows.append(entry_rows(entry))
            if len(rows) % YIELD_EVERY == 0:
                await asyncio.sleep(0)  # yield to requests on this loop
        if not rows:
            return 0
        days = {entry.intent.accepted_at_us // DAY_US for entry in batch}
        await self.partitions.ensure(day * DAY_US for day in days)
        try:
            async with writing(self._engine) as connection:
                written = await connection.run_sync(self._writer.write, rows)
        except BaseException:
            self.partitions.forget()  # retention may have dropped a known month: the next attempt creates it again
            raise
        return self._writer.committed(written)

    async def aclose(self) -> None:
        """Close the database's connections."""
        await self._engine.dispose()

    async def get(self, request_id: str) -> Entry | None:
        """One entry with its attempts; None if it is not there (yet)."""
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

    async def entries(self, since_us: int, until_us: int, *, page: int = PAGE) -> AsyncIterator[list[Entry]]:
        """Pages of entries accepted in [since_us, until_us), in time order."""
        order = (entries.c.accepted_at_us, entries.c.request_id)
        last = (since_us, b"")
        while True:
            query = (
                entry_select()
                .where(entries.c.accepted_at_us >= last[0], entries.c.accepted_at_us < until_us)
                .where(tuple_(*order) > tuple_(*last))
                .order_by(*order)
                .limit(page)
            )
            found = await self.select(query)
            if found:
                yield found
            if len(found) < page:
                return
            last = (found[-1].intent.accepted_at_us, bytes.fromhex(found[-1].intent.request_id))
