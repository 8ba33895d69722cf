"""Corrections as rows with a rollup's columns: those of a partial hour, and those booked after a month was closed."""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Subquery, and_, case, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.pricing.reprice import REASONS
from gateway.storage.rows.selected_entries import CHUNK
from gateway.storage.sums.filters import conditions, of_end_user
from gateway.storage.sums.periods import Cut
from gateway.storage.sums.rollup import SUMS
from gateway.storage.tables.books import adjustments, dimensions, entries
from gateway.storage.tables.columns import PAID_COLUMNS
from gateway.sums import SumsQuery

Totals = dict[str, Any]

_earlier = adjustments.alias()
IS_FIRST_PRICE: ColumnElement[bool] = and_(
    case(
        (entries.c.request_id.is_not(None), entries.c.list_pico_usd.is_(None)),
        else_=adjustments.c.reason == REASONS["unpriced"],  # retention has deleted the request
    ),
    adjustments.c.kind == "reprice",
    ~exists().where(
        _earlier.c.request_id == adjustments.c.request_id,
        _earlier.c.kind == "reprice",
        _earlier.c.id < adjustments.c.id,
    ),
)
"""Whether a correction, joined with its request, is the first to give it a price."""
_amounts = select(func.sum(_earlier.c.amount_pico_usd)).where(_earlier.c.request_id == entries.c.request_id)
_paid = [func.coalesce(entries.c[name], 0) for name in PAID_COLUMNS]
CORRECTED_COST: ColumnElement[int] = sum(_paid, func.coalesce(_amounts.scalar_subquery(), literal(0, BigInteger)))
"""A request's cost including all corrections; 0 if its price is still unknown."""
FIGURES: dict[str, ColumnElement[Any]] = {
    "adjusted_requests": literal(1),
    "priced_later_requests": case((IS_FIRST_PRICE, 1), else_=0),
    "adjustment_pico_usd": adjustments.c.amount_pico_usd,
}
_begins_us = adjustments.c.hour * literal(HOUR_US, BigInteger)
BESIDE_REQUESTS = adjustments.outerjoin(
    entries,
    and_(
        entries.c.request_id == adjustments.c.request_id,
        entries.c.accepted_at_us.between(_begins_us, _begins_us + (HOUR_US - 1)),
    ),
)


async def corrections(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[tuple[int, Totals]]:
    """Corrections within a cut with their times: the request's or, without one, the hour's beginning."""
    at_us = func.coalesce(entries.c.accepted_at_us, _begins_us)
    first, last = cut.since_us // HOUR_US, (cut.until_us - 1) // HOUR_US
    wanted = [adjustments.c.hour.between(first, last), at_us >= cut.since_us, at_us < cut.until_us]
    wanted += [*conditions(query), *of_end_user(query)]
    if query.as_of_us is not None:
        wanted.append(adjustments.c.at_us < query.as_of_us)
    figures = [figure.label(name) for name, figure in FIGURES.items()]
    found = (
        select(at_us.label("at_us"), *figures, entries.c.end_user, *list(dimensions.columns)[2:])
        .select_from(BESIDE_REQUESTS.join(dimensions, dimensions.c.id == adjustments.c.dimension_id))
        .where(*wanted)
    )
    async with connection.stream(found) as result:
        async for some in result.mappings().partitions(CHUNK):
            for row in some:
                yield row["at_us"], dict(row)


def taken_back(as_of_us: int) -> Subquery:
    """Negative hourly sums that cancel corrections booked from then on."""
    figures = [(-FIGURES[name] if name in FIGURES else literal(0)).label(name) for name in SUMS]
    return (
        select(adjustments.c.hour, adjustments.c.dimension_id, *figures)
        .select_from(BESIDE_REQUESTS)
        .where(adjustments.c.at_us >= as_of_us)
        .subquery()
    )
