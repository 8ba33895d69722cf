"""Corrections as rows with a rollup's columns: those of a part of an hour, those booked after a month was closed."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, case, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.instants import HOUR_US
from gateway.storage.sums.filters import conditions
from gateway.storage.tables import adjustments, dimensions, entries
from gateway.sums import SumsQuery

Totals = dict[str, Any]

_earlier = adjustments.alias()
IS_FIRST_PRICE: ColumnElement[bool] = and_(
    entries.c.request_id.is_not(None),
    entries.c.list_pico_usd.is_(None),
    adjustments.c.kind == "reprice",
    ~exists().where(
        _earlier.c.request_id == adjustments.c.request_id,
        _earlier.c.kind == "reprice",
        _earlier.c.id < adjustments.c.id,
    ),
)
"""Of a correction beside its request: it gave a price to what had none."""
FIGURES = {
    "adjusted_requests": literal(1),
    "priced_later_requests": case((IS_FIRST_PRICE, 1), else_=0),
    "adjustment_pico_usd": adjustments.c.amount_pico_usd,
}
_begins_us = adjustments.c.hour * literal(HOUR_US, BigInteger)


async def corrections(
    connection: AsyncConnection, query: SumsQuery, since_us: int, until_us: int, *, booked_from_us: int = 0
) -> list[tuple[int, Totals]]:
    """Of [since_us, until_us) and the query's filters, with their times: that of the request, or, without one, of the
    hour's beginning. `booked_from_us`: only those booked from then on."""
    in_hour = entries.c.accepted_at_us.between(_begins_us, _begins_us + (HOUR_US - 1))
    at_us = func.coalesce(entries.c.accepted_at_us, _begins_us)
    rows = await connection.execute(
        select(
            at_us.label("at_us"),
            *(figure.label(name) for name, figure in FIGURES.items()),
            *list(dimensions.columns)[2:],
        )
        .select_from(adjustments)
        .join(dimensions, dimensions.c.id == adjustments.c.dimension_id)
        .outerjoin(entries, and_(entries.c.request_id == adjustments.c.request_id, in_hour))
        .where(
            adjustments.c.hour.between(since_us // HOUR_US, (until_us - 1) // HOUR_US),
            adjustments.c.at_us >= booked_from_us,
            at_us >= since_us,
            at_us < until_us,
            *conditions(query),
        )
    )
    return [(row["at_us"], dict(row)) for row in rows.mappings()]


async def booked_later(connection: AsyncConnection, query: SumsQuery) -> list[tuple[int, Totals]]:
    """What takes corrections out again that were booked at `as_of_us` or later; nothing where none is asked for."""
    if query.as_of_us is None:
        return []
    found = await corrections(connection, query, query.since_us, query.until_us, booked_from_us=query.as_of_us)
    return [(at_us, {**row, **{name: -row[name] for name in FIGURES}}) for at_us, row in found]
