"""Single requests, found by filters, the newest, dearest or slowest first; see gateway.stores.EntryStore."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import microseconds
from gateway.ledger.entry import Entry
from gateway.storage.rows.selected_entries import entry_select, read_entries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sums.busy_hours import busy_hours
from gateway.storage.sums.corrections import CORRECTED_COST
from gateway.storage.sums.filters import has_tag
from gateway.storage.sums.ranked_hours import RankedHour, ranked_hours
from gateway.storage.tables import adjustments, dimensions, entries
from gateway.stores import Adjustment, BatchCost, Correction, EntryOrder, EntryWanted

PLAIN = ("key_id", "team", "project", "model", "backend", "rule", "status")
NEWEST = (entries.c.accepted_at_us.desc(), entries.c.request_id.desc())
ALWAYS_US = 2**62
RANKED_BY: Mapping[EntryOrder, tuple[ColumnElement[Any], str]] = {
    "cost": (CORRECTED_COST, "largest_pico_usd"),
    "total_time": (entries.c.total_us, "largest_total_us"),
    "first_token": (entries.c.time_to_first_token_us, "largest_first_token_us"),
}
"""The figure of a request, and what says of an hour how large it may be."""


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
            query = entry_select().where(*conditions)
            since_us = 0 if wanted.since is None else microseconds(wanted.since)
            until_us = ALWAYS_US if wanted.until is None else microseconds(wanted.until)
            if wanted.before is not None:
                number, accepted = await _place_of(connection, wanted.before)
                if accepted is None:
                    return []
                query = query.where(tuple_(entries.c.accepted_at_us, entries.c.request_id) < tuple_(accepted, number))
                until_us = min(until_us, accepted + 1)
            if wanted.batch_id is not None:
                return await _of_batch(connection, query.where(*_within(since_us, until_us)), wanted)
            if wanted.order != "newest":
                return await _largest(connection, query, conditions, (since_us, until_us), wanted)
            return await _newest(connection, query, conditions, (since_us, until_us), wanted.limit)

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

    async def batch_cost(self, batch_id: str, *, team: str | None = None) -> BatchCost:
        priced = exists().where(adjustments.c.request_id == entries.c.request_id, adjustments.c.kind == "reprice")
        is_unpriced = and_(entries.c.list_pico_usd.is_(None), ~priced)
        sums = (
            case((is_unpriced, 1), else_=0),
            entries.c.input_tokens,
            entries.c.output_tokens,
            CORRECTED_COST,
        )
        query = select(func.count(), *(func.coalesce(func.sum(one), 0) for one in sums))
        query = query.where(entries.c.batch_id == batch_id)
        if team is not None:
            query = query.join(dimensions, dimensions.c.id == entries.c.dimension_id).where(dimensions.c.team == team)
        async with self._engine.connect() as connection:
            found = (await connection.execute(query)).one()
        return BatchCost(*(int(one) for one in found))


async def _of_batch(connection: AsyncConnection, query: Select[Any], wanted: EntryWanted) -> list[Entry]:
    """An index leads to them, and they are no more than the lines of a file, and what of them was asked again."""
    order = NEWEST
    if wanted.order != "newest":
        figure, _ = RANKED_BY[wanted.order]
        order = (case((figure > 0, figure), else_=0).desc(), *NEWEST)
    mine = query.where(entries.c.batch_id == wanted.batch_id)
    return await read_entries(connection, mine.order_by(*order).limit(wanted.limit))


async def _place_of(connection: AsyncConnection, request_id: str) -> tuple[bytes, int | None]:
    """Its number, and when it was accepted; None where there is no such request."""
    try:
        number = bytes.fromhex(request_id)
    except ValueError:
        return b"", None
    known = select(entries.c.accepted_at_us).where(entries.c.request_id == number)
    return number, (await connection.execute(known)).scalar()


async def _newest(
    connection: AsyncConnection,
    query: Select[Any],
    conditions: list[ColumnElement[Any]],
    period: tuple[int, int],
    limit: int,
) -> list[Entry]:
    """From one hour that has such requests to the next: else a filter that few meet reads all requests."""
    query = query.order_by(*NEWEST)
    if not conditions:
        return await read_entries(connection, query.where(*_within(*period)).limit(limit))
    found: list[Entry] = []
    if (kept := await _kept(connection, period)) is None:
        return found
    async for begins, ends in busy_hours(connection, conditions, *kept):
        here = _within(max(begins, period[0]), min(ends, period[1]))
        found += await read_entries(connection, query.where(*here).limit(limit - len(found)))
        if len(found) == limit:
            break
    return found


async def _largest(
    connection: AsyncConnection,
    query: Select[Any],
    conditions: list[ColumnElement[Any]],
    period: tuple[int, int],
    wanted: EntryWanted,
) -> list[Entry]:
    """From the hour that may hold the largest figure to the next, until no hour can hold one that is missing; then the
    newest of those that have none."""
    figure, largest = RANKED_BY[wanted.order]
    best: list[tuple[int, int, bytes]] = []
    if (kept := await _kept(connection, period)) is None:
        return []
    ordered = (
        select(figure, entries.c.accepted_at_us, entries.c.request_id)
        .where(figure > 0)
        .order_by(figure.desc(), *NEWEST)
        .limit(wanted.limit)
    )
    async for hours in ranked_hours(connection, conditions, largest, kept):
        if len(best) == wanted.limit and hours[0].most < best[-1][0]:
            break
        of_them = ordered.where(or_(*[_of_hour(one, period) for one in hours]))
        rows = await connection.execute(of_them)
        best = sorted([*best, *((int(value), at_us, bytes(number)) for value, at_us, number in rows)], reverse=True)
        best = best[: wanted.limit]
    found = await _of_places(connection, [(at_us, number) for _, at_us, number in best])
    if len(found) < wanted.limit:
        without = query.where(func.coalesce(figure, 0) <= 0)
        found += await _newest(connection, without, conditions, period, wanted.limit - len(found))
    return found


async def _of_places(connection: AsyncConnection, places: Sequence[tuple[int, bytes]]) -> list[Entry]:
    """In their order."""
    if not places:
        return []
    times = [at_us for at_us, _ in places]
    near = entries.c.accepted_at_us.between(min(times), max(times))
    wanted = entry_select().where(entries.c.request_id.in_([number for _, number in places]), near)
    found = {one.intent.request_id: one for one in await read_entries(connection, wanted)}
    return [found[number.hex()] for _, number in places]


async def _kept(connection: AsyncConnection, period: tuple[int, int]) -> tuple[int, int] | None:
    """The part of a period from the first to the last request that is there; None where none is: sums stay for ever."""
    oldest, newest = (select(end(entries.c.accepted_at_us)).scalar_subquery() for end in (func.min, func.max))
    first, last = (await connection.execute(select(oldest, newest))).one()
    since_us, until_us = (0, 0) if first is None else (max(period[0], first), min(period[1], last + 1))
    return (since_us, until_us) if since_us < until_us else None


def _of_hour(hour: RankedHour, period: tuple[int, int]) -> ColumnElement[bool]:
    here = _within(max(hour.begins_us, period[0]), min(hour.ends_us, period[1]))
    return and_(*here, entries.c.dimension_id == hour.dimension_id)


def _within(since_us: int, until_us: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return entries.c.accepted_at_us >= since_us, entries.c.accepted_at_us < until_us


def _conditions(wanted: EntryWanted) -> list[ColumnElement[Any]]:
    """On dimensions."""
    named = {name: getattr(wanted, name) for name in PLAIN}
    found: list[ColumnElement[Any]] = [dimensions.c[name] == str(one) for name, one in named.items() if one is not None]
    return found if wanted.tag is None else [*found, has_tag(wanted.tag)]
