"""Partial hours, for periods that begin or end within an hour: their requests and corrections with a rollup's
columns."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from sqlalchemy import ColumnElement, Subquery, and_, case, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.ledger.entry import Entry
from gateway.storage.rows.dimension import Dimension, dimension_of
from gateway.storage.rows.entry_rows import FIGURES
from gateway.storage.rows.paid_parts import paid_parts
from gateway.storage.rows.selected_entries import entry_select, parts_of_entries
from gateway.storage.sums.corrections import Totals, corrections
from gateway.storage.sums.filters import meets, of_end_user
from gateway.storage.sums.periods import Cut
from gateway.storage.sums.rollup import Rollup
from gateway.storage.tables.books import attempts, circumstances, entries
from gateway.storage.tables.columns import BOUND_COLUMNS, PAID_COLUMNS
from gateway.sums import SumsQuery

PAID_ELSEWHERE: ColumnElement[bool] = exists().where(
    attempts.c.request_id == entries.c.request_id,
    attempts.c.accepted_at_us == entries.c.accepted_at_us,
    attempts.c.provider.is_not(None),
)


def requests_of(cut: Cut, query: SumsQuery) -> Subquery:
    """Each request as a rollup row of its own, with the two figures for sketches."""
    exact = circumstances.c.is_exact
    total: ColumnElement[Any] = sum((entries.c[name] for name in PAID_COLUMNS), literal(0))
    bounds = [case((exact, total), else_=func.coalesce(entries.c[name], 0)).label(name) for name in BOUND_COLUMNS]
    counts = {
        "unpriced_requests": entries.c.list_pico_usd.is_(None),
        "estimated_requests": circumstances.c.is_usage_estimated,
        "unbounded_requests": and_(exact.is_(False), entries.c.upper_pico_usd.is_(None)),
    }
    return (
        select(
            entries.c.dimension_id,
            entries.c.end_user,
            literal(1).label("requests"),
            *(case((test, 1), else_=0).label(name) for name, test in counts.items()),
            *(func.coalesce(entries.c[name], 0).label(name) for name in FIGURES),
            *bounds,
            literal(0).label("adjusted_requests"),
            literal(0).label("priced_later_requests"),
            literal(0).label("adjustment_pico_usd"),
            entries.c.time_to_first_token_us,
            entries.c.decode_tokens_per_second,
        )
        .join(circumstances, circumstances.c.id == entries.c.circumstance_id)
        .where(*_inside(cut), *of_end_user(query))
        .subquery()
    )


async def moved_in(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[tuple[int, Totals]]:
    """What `requests_of` lacks, as (time, row): costs billed elsewhere, which move from one dimension to another, and
    corrections. A correction has its request's time or, without one, the hour's beginning."""
    elsewhere = entry_select().where(*_inside(cut), *of_end_user(query)).where(PAID_ELSEWHERE)
    async for some in parts_of_entries(connection, elsewhere):
        for entry in some:
            for row in _moves(entry, query):
                yield entry.intent.accepted_at_us, row
    async for at_us, row in corrections(connection, query, cut):
        yield at_us, row


def _moves(entry: Entry, query: SumsQuery) -> Iterator[Totals]:
    own = dimension_of(entry)
    for part in paid_parts(entry):
        for dimension, is_taken in ((own, False), (part.dimension, True)):
            if meets(dimension, query):
                one = Rollup()
                (one.take if is_taken else one.give)(part)
                yield _row(one, dimension, entry.intent.end_user)


def _row(sums: Rollup, dimension: Dimension, end_user: str | None) -> Totals:
    return {**sums.row(), **dimension._asdict(), "end_user": end_user}


def _inside(cut: Cut) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return entries.c.accepted_at_us >= cut.since_us, entries.c.accepted_at_us < cut.until_us
