"""The requests of a part of an hour, each as sums of one, for periods that cut hours. Reads; decides nothing."""

from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.ledger.entry import Entry
from gateway.storage.dimension import Dimension, dimension_of
from gateway.storage.entry_rows import figures_of
from gateway.storage.paid_parts import paid_parts
from gateway.storage.periods import HOUR_US, Cut
from gateway.storage.rollup import Rollup
from gateway.storage.sql_ledger import entry_select, read_entries
from gateway.storage.sums_filters import conditions, meets
from gateway.storage.tables import adjustments, attempts, dimensions, entries
from gateway.sums import SumsQuery

Totals = dict[str, Any]
PAID_ELSEWHERE: ColumnElement[bool] = exists().where(
    attempts.c.request_id == entries.c.request_id,
    attempts.c.accepted_at_us == entries.c.accepted_at_us,
    attempts.c.provider.is_not(None),
)


async def sums_of_cut(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> list[tuple[int, Totals]]:
    """With the time of each. A correction is at its request's time; one without a request, at the hour's beginning."""
    inside = entry_select().where(entries.c.accepted_at_us >= cut.since_us, entries.c.accepted_at_us < cut.until_us)
    found = [
        (entry.intent.accepted_at_us, _own_sums(entry))
        for entry in await read_entries(connection, inside.where(*conditions(query)))
    ]
    for entry in await read_entries(connection, inside.where(PAID_ELSEWHERE)):
        for part in paid_parts(entry):
            if meets(part.dimension, query):
                one = Rollup()
                one.take(part)
                found.append((entry.intent.accepted_at_us, _row(one, part.dimension)))
    return found + await _corrections(connection, query, cut)


def _own_sums(entry: Entry) -> Totals:
    one = Rollup()
    one.add([entry], [figures_of(entry)])
    for part in paid_parts(entry):
        one.give(part)
    return {
        **_row(one, dimension_of(entry)),
        "successful_requests": int(entry.status == "completed"),
        "aborted_requests": int(entry.status in ("cancelled", "partial")),
        "simulated_requests": int(entry.is_simulated),
    }


def _row(sums: Rollup, dimension: Dimension) -> Totals:
    return {**sums.row(), **dimension._asdict()}


async def _corrections(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> list[tuple[int, Totals]]:
    begins_us = cut.hour * HOUR_US
    in_hour = entries.c.accepted_at_us.between(begins_us, begins_us + HOUR_US - 1)
    at_us = func.coalesce(entries.c.accepted_at_us, begins_us)
    columns = [literal(1).label("adjusted_requests"), adjustments.c.amount_pico_usd.label("adjustment_pico_usd")]
    rows = await connection.execute(
        select(at_us.label("at_us"), *columns, *list(dimensions.columns)[2:])
        .select_from(adjustments)
        .join(dimensions, dimensions.c.id == adjustments.c.dimension_id)
        .outerjoin(entries, and_(entries.c.request_id == adjustments.c.request_id, in_hour))
        .where(adjustments.c.hour == cut.hour, at_us >= cut.since_us, at_us < cut.until_us, *conditions(query))
    )
    return [(row["at_us"], dict(row)) for row in rows.mappings()]
