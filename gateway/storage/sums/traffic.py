"""Reads the traffic of each hour and model, a fortnight at a time: what was read of past ones is kept."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, case, literal, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.economics.traffic import HourlyTraffic
from gateway.instants import HOUR_US
from gateway.kept_answers.response_cache import BACKEND as RESPONSE_CACHE
from gateway.ledger.entry import OFF_PATH, Status
from gateway.routing.rules import SPECIALTIES
from gateway.storage.sums.by_dimension import SpanSums, read_figures, sum_of
from gateway.storage.sums.by_time import TimedSums, timed_parts
from gateway.storage.sums.kept_sums import KeptSums
from gateway.storage.sums.periods import Calendar
from gateway.storage.sums.spans import Span
from gateway.storage.sums.sum_rows import BY_STATUS
from gateway.storage.tables.books import dimensions, hourly
from gateway.storage.tables.columns import PAID_COLUMNS
from gateway.sums import SumsQuery

USED = hourly.c.input_tokens + hourly.c.output_tokens + hourly.c.gpu_us
IS_LOAD = or_(dimensions.c.status != Status.failed.value, USED > 0)
"""Without a throughput curve each request counts as the GPU's mean time, which one that nobody answered does not
take."""
PAID = [hourly.c[name] for name in (*PAID_COLUMNS, "adjustment_pico_usd")]
FIGURES: dict[str, ColumnElement[Any]] = {
    "requests": case((IS_LOAD, hourly.c.requests), else_=0),
    **{name: hourly.c[name] for name in ("input_tokens", "cached_input_tokens", "output_tokens", "gpu_us")},
    "cost_pico_usd": sum(PAID, literal(0)),
    "list_pico_usd": hourly.c.list_pico_usd,
    "unpriced_requests": hourly.c.unpriced_requests - hourly.c.priced_later_requests,
    "estimated_requests": case((IS_LOAD, hourly.c.estimated_requests), else_=0),
    "aborted_requests": case((BY_STATUS["aborted_requests"], hourly.c.requests), else_=0),
}

UNSERVED = (*sorted(OFF_PATH), *sorted(SPECIALTIES))


async def hourly_traffic(
    connection: AsyncConnection, kept: KeptSums, since_us: int, until_us: int, *, on_gpus: bool
) -> list[HourlyTraffic]:
    """See gateway.sums.ReportStore."""
    span = Span(hourly, HOUR_US, -(-since_us // HOUR_US), until_us // HOUR_US)
    query = SumsQuery(since_us, until_us, ("hour", "model"))
    found: list[HourlyTraffic] = []
    async for part in timed_parts(connection, query, span, Calendar("UTC", query.by)):
        read = partial(_read, connection, part, on_gpus=on_gpus)
        # Few rows have GPU time: reading them is faster than finding out whether what is kept is still valid.
        found += _rows(await (read() if on_gpus else kept.columns(connection, part, ("traffic",), read)))
    return found


async def _read(connection: AsyncConnection, part: Span, *, on_gpus: bool) -> TimedSums:
    is_asked = (dimensions.c.operation.not_in(UNSERVED), dimensions.c.backend != RESPONSE_CACHE)
    is_wanted = (hourly.c.gpu_us > 0,) if on_gpus else is_asked
    sums = [sum_of(connection, figure).label(name) for name, figure in FIGURES.items()]
    query = (
        select(dimensions.c.model, hourly.c.hour, *sums)
        .join_from(hourly, dimensions, dimensions.c.id == hourly.c.dimension_id)
        .where(*part.conditions(), *is_wanted)
        .group_by(hourly.c.hour, dimensions.c.model)
    )
    models, figures = await read_figures(connection, query, 1)
    sums_of_it = SpanSums(tuple(FIGURES), np.arange(len(models)), figures[1:])
    return TimedSums(sums_of_it, figures[0], models)


def _rows(read: TimedSums) -> Sequence[HourlyTraffic]:
    columns = [figure.tolist() for figure in read.sums.figures]
    rows = sorted(zip(read.at.tolist(), read.columns[0], *columns, strict=True))
    return [
        HourlyTraffic(
            hour_start_us=hour * HOUR_US,
            model=model,
            requests=requests,
            input_tokens=input_tokens,
            cached_input_tokens=cached_input_tokens,
            output_tokens=output_tokens,
            gpu_seconds=gpu_us / 1e6,
            cost_pico_usd=cost,
            list_cost_pico_usd=at_list,
            unpriced_requests=unpriced,
            estimated_requests=estimated,
            aborted_requests=aborted,
        )
        for hour, model, requests, input_tokens, cached_input_tokens, output_tokens, gpu_us, cost, at_list, unpriced,
        estimated, aborted in rows
    ]  # fmt: skip
