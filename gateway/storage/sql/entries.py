"""Single requests, found by filters, newest first; see gateway.stores.EntryStore."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import microseconds
from gateway.ledger.entry import Entry
from gateway.storage.rows.selected_entries import entry_select, read_entries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sums.busy_hours import busy_hours
from gateway.storage.sums.filters import has_tag
from gateway.storage.tables import adjustments, dimensions, entries
from gateway.stores import Adjustment, Correction, EntryOrder, EntryWanted

PLAIN = ("key_id", "team", "project", "model", "backend", "rule", "status")
NEWEST = (entries.c.accepted_at_us.desc(), entries.c.request_id.desc())
ALWAYS_US = 2**62
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
            conditions = _conditions(wanted)
            query = entry_select().where(*conditions).order_by(*_largest_first(wanted.order), *NEWEST)
            since_us = 0 if wanted.since is None else microseconds(wanted.since)
            until_us = ALWAYS_US if wanted.until is None else microseconds(wanted.until)
            if wanted.before is not None:
                number, accepted = await _place_of(connection, wanted.before)
                if accepted is None:
                    return []
                query = query.where(tuple_(entries.c.accepted_at_us, entries.c.request_id) < tuple_(accepted, number))
                until_us = min(until_us, accepted + 1)
            if conditions and wanted.order == "newest":
                return await _by_hours(connection, query, conditions, (since_us, until_us), wanted.limit)
            if conditions and (await connection.execute(select(dimensions.c.id).where(*conditions))).first() is None:
                return []
            return await read_entries(connection, query.where(*_within(since_us, until_us)).limit(wanted.limit))

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


async def _place_of(connection: AsyncConnection, request_id: str) -> tuple[bytes, int | None]:
    """Its number, and when it was accepted; None where there is no such request."""
    try:
        number = bytes.fromhex(request_id)
    except ValueError:
        return b"", None
    known = select(entries.c.accepted_at_us).where(entries.c.request_id == number)
    return number, (await connection.execute(known)).scalar()


async def _by_hours(
    connection: AsyncConnection,
    query: Select[Any],
    conditions: list[ColumnElement[Any]],
    period: tuple[int, int],
    limit: int,
) -> list[Entry]:
    """The newest, from one hour that has such requests to the next: else a filter that few meet reads all requests."""
    oldest, newest = (select(end(entries.c.accepted_at_us)).scalar_subquery() for end in (func.min, func.max))
    first, last = (await connection.execute(select(oldest, newest))).one()
    found: list[Entry] = []
    if first is None:
        return found
    async for begins, ends in busy_hours(connection, conditions, max(period[0], first), min(period[1], last + 1)):
        here = _within(max(begins, period[0]), min(ends, period[1]))
        found += await read_entries(connection, query.where(*here).limit(limit - len(found)))
        if len(found) == limit:
            break
    return found


def _within(since_us: int, until_us: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return entries.c.accepted_at_us >= since_us, entries.c.accepted_at_us < until_us


def _conditions(wanted: EntryWanted) -> list[ColumnElement[Any]]:
    """On dimensions."""
    named = {name: getattr(wanted, name) for name in PLAIN}
    found: list[ColumnElement[Any]] = [dimensions.c[name] == str(one) for name, one in named.items() if one is not None]
    return found if wanted.tag is None else [*found, has_tag(wanted.tag)]


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
