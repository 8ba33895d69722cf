"""Single requests, found by filters, newest first; see gateway.stores.EntryStore."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.ledger.entry import Entry
from gateway.storage.sql_ledger import SqlLedger, entry_select, read_entries
from gateway.storage.tables import adjustments, dimensions, entries
from gateway.stores import Adjustment, Correction, EntryOrder, EntryWanted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLAIN = ("key_id", "team", "project", "model", "backend", "rule", "status")
COSTS = ("input", "cached_input", "cache_write", "output", "other", "compute")


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

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        found: dict[str, list[Correction]] = {}
        numbers = [bytes.fromhex(one) for one in request_ids]
        query = select(adjustments).where(adjustments.c.request_id.in_(numbers)).order_by(adjustments.c.id)
        async with self._engine.connect() as connection:
            for row in await connection.execute(query):
                number = bytes(row.request_id).hex()
                booked = Adjustment(number, row.kind, row.reference, row.amount_pico_usd, row.reason)
                found.setdefault(number, []).append(Correction(row.at_us, booked))
        return found


def _filtered(wanted: EntryWanted) -> Select[Any]:
    newest = entries.c.accepted_at_us.desc(), entries.c.request_id.desc()
    query = entry_select().order_by(*_largest_first(wanted.order), *newest).limit(wanted.limit)
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


def _largest_first(order: EntryOrder) -> Sequence[ColumnElement[Any]]:
    match order:
        case "newest":
            return ()
        case "cost":  # of a request without a known price none of these is known
            parts = (entries.c[f"{name}_pico_usd"] for name in COSTS)
            figure: ColumnElement[Any] = sum((func.coalesce(one, 0) for one in parts), literal(0))
        case "total_time":
            figure = entries.c.total_us
        case "first_token":
            figure = entries.c.time_to_first_token_us
    return (figure.desc().nulls_last(),)


def has_tag(tag: str) -> Any:
    """Tags are a JSON array of strings: a quoted string in it is one whole tag, since inner quotes are escaped."""
    return dimensions.c.tags.contains(json.dumps(tag, ensure_ascii=False), autoescape=True)


def _us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
