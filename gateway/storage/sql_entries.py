"""Single requests, found by filters, newest first; see gateway.stores.EntryStore."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Select, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.entry import Entry
from gateway.storage.sql_ledger import SqlLedger, entry_select, read_entries
from gateway.storage.tables import dimensions, entries
from gateway.stores import EntryWanted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = ("key_id", "team", "project", "model", "backend", "rule", "status")


class SqlEntries:
    """Reads what the shipper wrote."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._ledger = SqlLedger(engine)

    async def get(self, request_id: str) -> Entry | None:
        return await self._ledger.get(request_id)

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        async with self._engine.connect() as connection:
            query = _filtered(wanted)
            if wanted.before is not None:
                try:
                    number = bytes.fromhex(wanted.before)
                except ValueError:
                    return []
                known = select(entries.c.accepted_at_us).where(entries.c.request_id == number)
                accepted = (await connection.execute(known)).scalar()
                if accepted is None:
                    return []
                place = tuple_(entries.c.accepted_at_us, entries.c.request_id)
                query = query.where(entries.c.accepted_at_us <= accepted, place < tuple_(accepted, number))
            return await read_entries(connection, query)


def _filtered(wanted: EntryWanted) -> Select[Any]:
    query = entry_select().order_by(entries.c.accepted_at_us.desc(), entries.c.request_id.desc()).limit(wanted.limit)
    if wanted.since is not None:
        query = query.where(entries.c.accepted_at_us >= _us(wanted.since))
    if wanted.until is not None:
        query = query.where(entries.c.accepted_at_us < _us(wanted.until))
    for name in PLAIN:
        value = getattr(wanted, name)
        if value is not None:
            query = query.where(dimensions.c[name] == str(value))
    if wanted.tag is not None:
        query = query.where(has_tag(wanted.tag))
    return query


def has_tag(tag: str) -> Any:
    """Tags are a JSON array of strings: a quoted string in it is one whole tag, since inner quotes are escaped."""
    return dimensions.c.tags.contains(json.dumps(tag, ensure_ascii=False), autoescape=True)


def _us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
