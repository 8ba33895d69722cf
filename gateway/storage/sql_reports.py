"""Sums by anything, from the hourly rollups; hours that a period or a local midnight cuts are summed from the entries.

See gateway.stores.ReportStore. Sums are exact integers on both databases, beyond 64 bits too.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, Table, case, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.economics.traffic import HourlyTraffic
from gateway.routing.rules import EMBEDDINGS
from gateway.storage.cut_hours import Totals, moved_in, requests_of
from gateway.storage.periods import HOUR_US, Calendar, Cut, cut_hours
from gateway.storage.rollup import DAY_HOURS, SKETCHES, SUMS
from gateway.storage.sketch import percentile, sketch
from gateway.storage.sums_filters import COLUMNS, conditions
from gateway.storage.tables import api_keys, daily, dimensions, entries, hourly
from gateway.stores import SHADOW
from gateway.sums import Latencies, Sums, SumsQuery

KEYS_AT_ONCE = 500
ROWS_AT_ONCE = 250
TIMES = ("hour", "day", "month")
BY_STATUS: dict[str, Any] = {
    "successful_requests": dimensions.c.status == "completed",
    "aborted_requests": dimensions.c.status.in_(("cancelled", "partial")),
    "simulated_requests": dimensions.c.is_simulated,
}


class SqlReports:
    """Reads what the shipper added up."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        calendar = Calendar(query.time_zone, query.by)
        groups: dict[tuple[str | None, ...], Totals] = {}
        first_us, last_us = await self.first_and_last_us() or (0, 0)
        async with self._engine.connect() as connection:
            booked_us = (first_us, last_us + DAY_HOURS * HOUR_US)  # a day more, for what is booked meanwhile
            cuts = cut_hours(query.since_us, query.until_us, calendar, booked_us)
            gone = await self._without_entries(connection, cuts)
            split = [cut for cut in cuts if cut.hour not in gone]
            whole = [cut.hour for cut in split]
            # An hour whose entries are gone belongs to the period in which it begins.
            outside = {hour for hour in gone if not query.since_us <= hour * HOUR_US < query.until_us}
            for span in spans(query, skipped=outside.union(whole)):
                async for row in _rollup_rows(connection, query, span):
                    _add(groups, query, calendar, row["at"] * span.unit_us if "at" in row else None, row)
            for cut in split:
                async for row in _cut_rows(connection, query, cut):
                    _add(groups, query, calendar, cut.since_us, row)
                for at_us, row in await moved_in(connection, query, cut):
                    _add(groups, query, calendar, at_us, row)
        ordered = sorted(groups, key=lambda values: tuple((value is not None, value or "") for value in values))
        found: list[Sums] = []
        for values in ordered:
            if len(found) % ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # requests wait on this loop too
            found.append(_sums(query, values, groups.pop(values)))
        return found

    async def hourly_traffic(
        self, since_us: int, until_us: int, *, with_simulated: bool = True, of_all_kinds: bool = False
    ) -> Sequence[HourlyTraffic]:
        first, end = -(-since_us // HOUR_US), until_us // HOUR_US
        aborted = dimensions.c.status.in_(("cancelled", "partial"))
        cost = sum((hourly.c[name] for name in SUMS if name.endswith("_pico_usd") and name not in NOT_COST), literal(0))
        query = (
            select(
                hourly.c.hour,
                dimensions.c.model,
                *(func.sum(hourly.c[name]).label(name) for name in TRAFFIC),
                func.sum(cost).label("cost"),
                func.sum(case((aborted, hourly.c.requests), else_=0)).label("aborted"),
            )
            .join(dimensions, dimensions.c.id == hourly.c.dimension_id)
            .where(hourly.c.hour >= first, hourly.c.hour < end)
            .group_by(hourly.c.hour, dimensions.c.model)
            .order_by(hourly.c.hour, dimensions.c.model)
        )
        if not with_simulated:
            query = query.where(dimensions.c.is_simulated.is_(False))
        if not of_all_kinds:
            query = query.where(dimensions.c.operation.not_in((SHADOW, EMBEDDINGS)))
        async with self._engine.connect() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [
            HourlyTraffic(
                hour_start_us=row["hour"] * HOUR_US,
                model=row["model"],
                requests=int(row["requests"]),
                input_tokens=int(row["input_tokens"]),
                cached_input_tokens=int(row["cached_input_tokens"]),
                output_tokens=int(row["output_tokens"]),
                gpu_seconds=int(row["gpu_us"]) / 1e6,
                cost_pico_usd=int(row["cost"]),
                list_cost_pico_usd=int(row["list_pico_usd"]),
                unpriced_requests=int(row["unpriced_requests"]),
                estimated_requests=int(row["estimated_requests"]),
                aborted_requests=int(row["aborted"]),
            )
            for row in rows
        ]

    async def key_names(self, key_ids: Collection[str]) -> Mapping[str, str]:
        found: dict[str, str] = {}
        wanted = sorted(key_ids)
        async with self._engine.connect() as connection:
            for start in range(0, len(wanted), KEYS_AT_ONCE):
                some = api_keys.c.id.in_(wanted[start : start + KEYS_AT_ONCE])
                rows = await connection.execute(select(api_keys.c.id, api_keys.c.name).where(some))
                found.update((row.id, row.name) for row in rows)
        return found

    async def first_and_last_us(self) -> tuple[int, int] | None:
        async with self._engine.connect() as connection:
            # Each apart: SQLite finds the end of an index for one, and reads all of it for both.
            first, last = (select(end(hourly.c.hour)).scalar_subquery() for end in (func.min, func.max))
            begin, end = (await connection.execute(select(first, last))).one()
        return None if begin is None else (begin * HOUR_US, (end + 1) * HOUR_US)

    @staticmethod
    async def _without_entries(connection: AsyncConnection, cuts: Iterable[Cut]) -> set[int]:
        """Hours whose single requests are not kept any more: they count where the hour begins."""
        gone: set[int] = set()
        for cut in cuts:
            inside = entries.c.accepted_at_us.between(cut.hour * HOUR_US, (cut.hour + 1) * HOUR_US - 1)
            if (await connection.execute(select(entries.c.accepted_at_us).where(inside).limit(1))).scalar() is None:
                gone.add(cut.hour)
        return gone


NOT_COST = ("list_pico_usd", "lower_pico_usd", "upper_pico_usd")
TRAFFIC = (
    "requests",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "gpu_us",
    "list_pico_usd",
    "unpriced_requests",
    "estimated_requests",
)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one rollup table: [first, end) but for `skipped`."""

    table: Table
    unit_us: int
    first: int
    end: int
    skipped: frozenset[int] = frozenset()


def spans(query: SumsQuery, *, skipped: Set[int]) -> list[Span]:
    """The period's hours: whole UTC days from the daily sums, unless the answer needs the hours themselves."""
    first, end = query.since_us // HOUR_US, -(-query.until_us // HOUR_US)
    needs_hours = "hour" in query.by or ({"day", "month"} & set(query.by) and query.time_zone != "UTC")
    first_day, end_day = -(-first // DAY_HOURS), end // DAY_HOURS
    if needs_hours or first_day >= end_day:
        return [Span(hourly, HOUR_US, first, end, frozenset(skipped))]
    # A day with a skipped hour is taken hour by hour.
    broken = frozenset(hour // DAY_HOURS for hour in skipped if first_day <= hour // DAY_HOURS < end_day)
    found = [Span(daily, HOUR_US * DAY_HOURS, first_day, end_day, broken)]
    edges = [(first, first_day * DAY_HOURS), (end_day * DAY_HOURS, end)]
    edges += [(day * DAY_HOURS, (day + 1) * DAY_HOURS) for day in sorted(broken)]
    return found + [Span(hourly, HOUR_US, start, stop, frozenset(skipped)) for start, stop in edges if start < stop]


async def _rollup_rows(connection: AsyncConnection, query: SumsQuery, span: Span) -> AsyncIterator[Totals]:
    """Sums by the columns of the groups, and by hour or day where a time is asked for."""
    table = span.table
    unit = table.columns[0]
    keys: list[ColumnElement[Any]] = [dimensions.c[name] for name in _group_columns(query)]
    if any(name in TIMES for name in query.by):
        keys.append(unit.label("at"))
    wanted: list[Any] = [unit >= span.first, unit < span.end, *conditions(query)]
    if span.skipped:
        wanted.append(unit.not_in(sorted(span.skipped)))
    async for totals in _summed(connection, table, keys, wanted):
        yield totals
    if query.with_latencies:
        source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
        sketches = [table.c[name] for name in SKETCHES]
        parts: dict[tuple[Any, ...], tuple[list[bytes], ...]] = {}
        async for *key, first, decode in _rows(connection, select(*keys, *sketches).select_from(source).where(*wanted)):
            firsts, decodes = parts.setdefault(tuple(key), ([], []))
            firsts.append(first)
            decodes.append(decode)
        for key, lists in parts.items():
            yield _of_key(keys, key, map(b"".join, lists))


async def _cut_rows(connection: AsyncConnection, query: SumsQuery, cut: Cut) -> AsyncIterator[Totals]:
    """The same of the requests of a part of an hour."""
    table, wanted = requests_of(cut), conditions(query)
    keys: list[ColumnElement[Any]] = [dimensions.c[name] for name in _group_columns(query)]
    async for totals in _summed(connection, table, keys, wanted):
        yield totals
    if query.with_latencies:
        source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
        figures = (table.c.time_to_first_token_us, table.c.decode_tokens_per_second)
        values: dict[tuple[Any, ...], tuple[list[float], list[float]]] = {}
        found = select(*keys, *figures).select_from(source).where(*wanted)
        async for *key, first_us, speed in _rows(connection, found):
            firsts, speeds = values.setdefault(tuple(key), ([], []))
            firsts += [] if first_us is None else [first_us / 1e6]
            speeds += [] if speed is None else [speed]
        for key, lists in values.items():
            yield _of_key(keys, key, map(sketch, lists))


async def _summed(
    connection: AsyncConnection,
    table: Table | Subquery,
    keys: Sequence[ColumnElement[Any]],
    wanted: Sequence[ColumnElement[Any]],
) -> AsyncIterator[Totals]:
    sums = [part for name in SUMS for part in _exact_sum(connection, table.c[name])]
    sums += [func.sum(case((test, table.c.requests), else_=0)).label(name) for name, test in BY_STATUS.items()]
    source = table.join(dimensions, dimensions.c.id == table.c.dimension_id)
    names = [column.name for column in (*keys, *sums)]
    async for row in _rows(connection, select(*keys, *sums).select_from(source).where(*wanted).group_by(*keys)):
        totals = dict(zip(names, row, strict=True))
        if totals["requests"] is not None:
            yield _joined(totals)


async def _rows(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[tuple[Any, ...]]:
    """What it finds, fetched a little at a time: requests pass on this loop in between."""
    async with connection.stream(query) as result:
        async for some in result.partitions(ROWS_AT_ONCE):
            for row in some:
                yield tuple(row)


def _of_key(keys: Sequence[ColumnElement[Any]], values: tuple[Any, ...], sketches: Iterable[bytes]) -> Totals:
    """One row with all sketches of a key joined: there are far more rows than keys."""
    return {
        **dict(zip([key.name for key in keys], values, strict=True)),
        **dict(zip(SKETCHES, sketches, strict=True)),
    }


def _exact_sum(connection: AsyncConnection, column: ColumnElement[Any]) -> list[ColumnElement[Any]]:
    """PostgreSQL adds 64-bit integers exactly. SQLite's sum fails beyond 64 bits: money is summed in two halves."""
    name = str(column.key)
    if connection.dialect.name != "sqlite" or not name.endswith("_pico_usd"):
        return [func.sum(column).label(name)]
    high, low = column.op(">>")(32), column.op("&")(0xFFFFFFFF)
    return [func.sum(high).label(f"{name}:high"), func.sum(low).label(name)]


def _joined(row: Totals) -> Totals:
    joined = dict(row)
    for name in SUMS:
        high = joined.pop(f"{name}:high", 0)
        joined[name] = (int(high) << 32) + int(joined[name])
    return joined


def _group_columns(query: SumsQuery) -> list[str]:
    return list(dict.fromkeys(COLUMNS[name] for name in query.by if name not in TIMES))


def _add(
    groups: dict[tuple[str | None, ...], Totals], query: SumsQuery, calendar: Calendar, at_us: int | None, row: Totals
) -> None:
    for values in _groups_of(query, calendar, at_us, row):
        totals = groups.setdefault(values, {})
        for name in (*SUMS, *BY_STATUS):
            totals[name] = totals.get(name, 0) + int(row.get(name) or 0)
        for name in SKETCHES:
            if row.get(name):
                totals.setdefault(name, []).append(bytes(row[name]))


def _groups_of(query: SumsQuery, calendar: Calendar, at_us: int | None, row: Totals) -> list[tuple[str | None, ...]]:
    """One group, or one for each tag."""
    found: list[tuple[str | None, ...]] = [()]
    for name in query.by:
        if name in TIMES:
            values: list[str | None] = [calendar.label(name, at_us or 0)]
        elif name == "tag":
            values = list(json.loads(row["tags"])) or [None]
        elif name == "is_simulated":
            values = ["true" if row["is_simulated"] else "false"]
        else:
            values = [row[COLUMNS[name]]]
        found = [(*group, value) for group in found for value in values]
    return found


def _sums(query: SumsQuery, values: tuple[str | None, ...], totals: Totals) -> Sums:
    numbers = {name: totals[name] for name in (*SUMS, *BY_STATUS)}
    latencies = None
    if query.with_latencies:
        first, decode = (b"".join(totals.get(name, ())) for name in SKETCHES)
        latencies = Latencies(
            percentile(first, 0.5),
            percentile(first, 0.95),
            percentile(first, 0.99),
            percentile(decode, 0.5),
            percentile(decode, 0.05),
        )
    return Sums(dict(zip(query.by, values, strict=True)), **numbers, latencies=latencies)
