"""Finds single requests by filters, the newest, most expensive or slowest first; see gateway.stores.EntryStore."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Select, and_, case, exists, func, literal, or_, select, true, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.instants import HOUR_US, microseconds
from gateway.ledger.entry import Cost, Entry
from gateway.storage.rows.entry_detail import Detail, decode_detail
from gateway.storage.rows.selected_entries import entry_select, read_entries
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sums.busy_hours import busy_hours
from gateway.storage.sums.corrections import CORRECTED_COST
from gateway.storage.sums.filters import has_tag
from gateway.storage.sums.ranked_hours import RankedHour, ranked_hours
from gateway.storage.sums.sum_rows import parts_of
from gateway.storage.tables.books import adjustments, dimensions, entries
from gateway.storage.tables.columns import COST_COLUMNS
from gateway.stores import Adjustment, BatchCost, Correction, EntryOrder, EntryWanted, Explored

PLAIN = ("key_id", "team", "project", "model", "backend", "rule", "status")
NEWEST = (entries.c.accepted_at_us.desc(), entries.c.request_id.desc())
ALWAYS_US = 2**62
RANKED_BY: Mapping[EntryOrder, tuple[ColumnElement[Any], str]] = {
    "cost": (CORRECTED_COST, "largest_pico_usd"),
    "total_time": (entries.c.total_us, "largest_total_us"),
    "first_token": (entries.c.time_to_first_token_us, "largest_first_token_us"),
}
"""By order: the figure of a request, and the rollup column with an hour's largest figure."""
MOST_HOURS = 100
HOURS_A_LOOK = 5
"""Reading a request by an index costs as much as this many sequentially. So a distant page searches at most MOST_HOURS,
or this fraction of all hours, and then reads the whole period."""


class Place(NamedTuple):
    """A request's position in an order: by its figure (0 if the request or the order has none), then by its time."""

    figure: int
    accepted_at_us: int
    number: bytes


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
            place = None
            if (
                wanted.before is not None
                and (place := await _place_of(connection, wanted.before, wanted.order)) is None
            ):
                return []
            if indexed := _indexed(wanted):
                return await _by_index(connection, query.where(*indexed), (since_us, until_us), wanted, place)
            if wanted.order != "newest":
                return await _largest(connection, query, conditions, (since_us, until_us), wanted, place)
            return await _newest(connection, query, conditions, (since_us, until_us), wanted.limit, place)

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

    async def explored(self, rule: str, since_us: int, until_us: int) -> AsyncIterator[Sequence[Explored]]:
        """Reads the few columns that it takes: a day's million of whole entries would take minutes of CPU."""
        query = select(entries.c.detail, *(entries.c[name] for name in COST_COLUMNS))
        query = query.join(dimensions, dimensions.c.id == entries.c.dimension_id)
        query = query.where(dimensions.c.rule == rule, *_within(since_us, until_us))
        async with self._engine.connect() as connection:
            async for rows in parts_of(connection, query):
                yield [found for detail, *costs in rows if (found := _explored(decode_detail(detail), costs))]

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


def _explored(detail: Detail, costs: Sequence[Any]) -> Explored | None:
    if not detail.exploration_cost:
        return None
    total = None if None in costs else Cost(*costs).total_pico_usd
    return Explored(total, detail.expected_cost, detail.exploration_cost)


def _indexed(wanted: EntryWanted) -> list[ColumnElement[bool]]:
    """Conditions that an index finds the requests by: of a batch, which are only as many as lines in a file, plus
    retries; or of an end user."""
    named = {entries.c.batch_id: wanted.batch_id, entries.c.end_user: wanted.end_user}
    return [column == value for column, value in named.items() if value is not None]


async def _by_index(
    connection: AsyncConnection, query: Select[Any], period: tuple[int, int], wanted: EntryWanted, after: Place | None
) -> list[Entry]:
    if wanted.order == "newest":  # in the index's own order: an end user may have a million
        return await _newest(connection, query, [], period, wanted.limit, after)
    figure = _figure(wanted.order)
    query = query.where(*_within(*period))
    if after is not None:
        query = query.where(_is_after(after, figure))
    return await read_entries(connection, query.order_by(figure.desc(), *NEWEST).limit(wanted.limit))


def _figure(order: EntryOrder) -> ColumnElement[int]:
    """What an order ranks by, descending and at least 0; constant for the newest."""
    if order == "newest":
        return literal(0, BigInteger)
    figure, _ = RANKED_BY[order]
    return case((figure > 0, figure), else_=0)


def _is_after(place: Place, figure: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition for requests after a place."""
    return or_(
        figure < literal(place.figure, BigInteger), and_(figure == literal(place.figure, BigInteger), _is_older(place))
    )


def _is_older(place: Place) -> ColumnElement[bool]:
    return tuple_(entries.c.accepted_at_us, entries.c.request_id) < tuple_(place.accepted_at_us, place.number)


async def _place_of(connection: AsyncConnection, request_id: str, order: EntryOrder) -> Place | None:
    """None if there is no such request."""
    try:
        number = bytes.fromhex(request_id)
    except ValueError:
        return None
    known = select(_figure(order), entries.c.accepted_at_us).where(entries.c.request_id == number)
    row = (await connection.execute(known)).one_or_none()
    return None if row is None else Place(int(row[0]), row[1], number)


async def _newest(
    connection: AsyncConnection,
    query: Select[Any],
    conditions: list[ColumnElement[Any]],
    period: tuple[int, int],
    limit: int,
    after: Place | None,
) -> list[Entry]:
    """Goes through the hours that have such requests: otherwise a rarely met filter would read all requests."""
    query = query.order_by(*NEWEST)
    if after is not None:
        query, period = query.where(_is_older(after)), (period[0], min(period[1], after.accepted_at_us + 1))
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
    after: Place | None,
) -> list[Entry]:
    """The requests with the largest figures, then the newest of those without."""
    figure, _ = RANKED_BY[wanted.order]
    found: list[Entry] = []
    if after is None or after.figure:
        best = await _with_figure(connection, conditions, period, wanted, after)
        found, after = await _of_places(connection, best), None
    if len(found) < wanted.limit:
        without = query.where(func.coalesce(figure, 0) <= 0)
        found += await _newest(connection, without, conditions, period, wanted.limit - len(found), after)
    return found


async def _with_figure(
    connection: AsyncConnection,
    conditions: list[ColumnElement[Any]],
    period: tuple[int, int],
    wanted: EntryWanted,
    after: Place | None,
) -> list[Place]:
    """Goes through the hours by their largest figures, until no other hour can have a larger one than those found."""
    figure, largest = RANKED_BY[wanted.order]
    if (kept := await _kept(connection, period)) is None:
        return []

    def query(least: int) -> Select[Any, Any, Any]:
        """Compares the figure in one condition that is rarely met, since each evaluation is a subquery on
        corrections."""
        found = select(figure, entries.c.accepted_at_us, entries.c.request_id)
        found = found.order_by(figure.desc(), *NEWEST).limit(wanted.limit)
        if after is None:
            return found.where(figure >= least)
        return found.where(figure.between(least, after.figure), or_(_is_older(after), figure < after.figure))

    best, looked_into = list[Place](), 0
    worth = max(MOST_HOURS, (kept[1] - kept[0]) // HOUR_US // HOURS_A_LOOK)
    async for hours in ranked_hours(connection, conditions, largest, kept):
        least = best[-1].figure if len(best) == wanted.limit else 1
        if hours[0].most < least:
            break
        if looked_into >= worth:
            mine = entries.c.dimension_id.in_(select(dimensions.c.id).where(*conditions)) if conditions else true()
            return await _places(connection, query(least).where(mine, *_within(*kept)))
        looked_into += len(hours)
        of_them = query(least).where(or_(*[_of_hour(one, period) for one in hours]))
        best = sorted([*best, *await _places(connection, of_them)], reverse=True)[: wanted.limit]
    return best


async def _places(connection: AsyncConnection, query: Select[Any, Any, Any]) -> list[Place]:
    rows = await connection.execute(query)
    return [Place(int(figure), at_us, bytes(number)) for figure, at_us, number in rows]


async def _of_places(connection: AsyncConnection, places: Sequence[Place]) -> list[Entry]:
    """The entries at these places, in order."""
    if not places:
        return []
    times = [one.accepted_at_us for one in places]
    near = entries.c.accepted_at_us.between(min(times), max(times))
    wanted = entry_select().where(entries.c.request_id.in_([one.number for one in places]), near)
    found = {one.intent.request_id: one for one in await read_entries(connection, wanted)}
    return [found[one.number.hex()] for one in places]


async def _kept(connection: AsyncConnection, period: tuple[int, int]) -> tuple[int, int] | None:
    """The part of a period from the first to the last stored request, as sums outlive requests; None if there is
    none."""
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
    named = {name: getattr(wanted, name) for name in PLAIN}
    found: list[ColumnElement[Any]] = [dimensions.c[name] == str(one) for name, one in named.items() if one is not None]
    return found if wanted.tag is None else [*found, has_tag(wanted.tag)]
