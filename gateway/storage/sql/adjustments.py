"""Corrections of booked costs: rows are only added, and added to the hourly sums in the same transaction."""

import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.errors import StateError
from gateway.instants import MINUTE_US, moment_of
from gateway.pricing.reprice import Booked
from gateway.storage.database import (
    CORRECTIONS_LOCK,
    RECONCILIATION_LOCK,
    REPRICING_LOCK,
    lock,
    share_lock,
    shared_now_us,
    writing,
)
from gateway.storage.rows.interned import insert_or_ignore
from gateway.storage.sql.audit import append_audit
from gateway.storage.sums.add_to_rollups import add_to_rollups
from gateway.storage.sums.corrections import CORRECTED_COST
from gateway.storage.sums.end_user_days import Place, add_to_end_users, place_of
from gateway.storage.sums.end_users import IS_ORPHANED
from gateway.storage.sums.rollup import HOUR_US, LARGEST, RANKED, SKETCHES, SUMS
from gateway.storage.tables.books import adjustments, dimensions, entries, hourly
from gateway.storage.tables.columns import PAID_COLUMNS
from gateway.stores import Adjustment, Difference

CHUNK = 500


class SqlAdjustments:
    """Books corrections. Raises StateError if the books show that the clock is behind, unless it `trusts_clock`."""

    def __init__(self, engine: AsyncEngine, *, now_us: Callable[[], int] = now_us, trusts_clock: bool = False) -> None:
        self._engine = engine
        self._now_us = now_us
        self._trusts_clock = trusts_clock

    async def book(self, batch: Sequence[Adjustment], *, author: str) -> int:
        """Books all in one transaction; returns how many were new. Corrections that were booked before, that belong to
        unknown requests, or that were computed from an outdated number of corrections are skipped."""
        booked = amount = 0
        async with writing(self._engine) as connection:
            at_us = await self._today_us(connection)
            if any(one.after is not None for one in batch):
                await lock(connection, REPRICING_LOCK)  # two with different prices would both correct the same cost
            for start in range(0, len(batch), CHUNK):
                chunk = batch[start : start + CHUNK]
                places = await _places(connection, {bytes.fromhex(one.request_id) for one in chunk})
                rows = _rows(chunk, places, at_us, author)
                new = await _insert_new(connection, rows, places)
                booked += len(new)
                amount += sum(row["amount_pico_usd"] for row in new)
            if booked:
                await append_audit(
                    connection,
                    at_us=at_us,
                    actor=author,
                    action=f"ledger.{batch[0].kind}",
                    subject=batch[0].reference,
                    reason=batch[0].reason,
                    detail=f"{booked} requests, {amount} pico-USD",
                )
        return booked

    async def book_difference(self, difference: Difference, *, author: str) -> bool:
        """Books corrections without a request, one per group of the period, in proportion to their costs. False if
        there is no group, or the provider's reference was booked before."""
        known = (
            select(adjustments.c.id)
            .join(dimensions, dimensions.c.id == adjustments.c.dimension_id)
            .where(
                adjustments.c.kind == "reconciliation",
                adjustments.c.reference == difference.reference,
                dimensions.c.provider == difference.provider,  # two may use the same number, such as 2026-11
            )
        )
        async with writing(self._engine) as connection:
            await lock(connection, RECONCILIATION_LOCK)  # two at the same time would both find it unbooked
            groups = await _groups_of(connection, difference)
            if not groups or (await connection.execute(known)).first() is not None:
                return False
            at_us = await self._today_us(connection)
            rows: list[dict[str, Any]] = [
                {
                    "at_us": at_us,
                    "hour": hour,
                    "dimension_id": dimension_id,
                    "kind": "reconciliation",
                    "reference": difference.reference,
                    "amount_pico_usd": amount,
                    "reason": difference.reason,
                    "author": author,
                }
                for (hour, dimension_id), amount in _shares(difference.amount_pico_usd, groups).items()
            ]
            await connection.execute(adjustments.insert(), rows)
            await connection.run_sync(add_to_rollups, _sums(rows))
            await append_audit(
                connection,
                at_us=at_us,
                actor=author,
                action="ledger.reconciliation",
                subject=difference.reference,
                reason=difference.reason,
                detail=f"{difference.amount_pico_usd} pico-USD over {len(rows)} groups",
            )
        return True

    async def booked(self, request_ids: Sequence[str]) -> dict[str, Booked]:
        """Request id -> its price corrections so far; requests without any are omitted."""
        found: dict[str, Booked] = {}
        columns = (adjustments.c.request_id, func.sum(adjustments.c.amount_pico_usd), func.count())
        async with self._engine.connect() as connection:
            for start in range(0, len(request_ids), CHUNK):
                wanted = [bytes.fromhex(one) for one in request_ids[start : start + CHUNK]]
                rows = await connection.execute(
                    select(*columns)
                    .where(adjustments.c.request_id.in_(wanted), adjustments.c.kind == "reprice")
                    .group_by(adjustments.c.request_id)
                )
                found |= {bytes(number).hex(): Booked(int(amount), int(count)) for number, amount, count in rows}
        return found

    async def newest(self) -> int:
        """See gateway.limits.counters.Corrections."""
        async with self._engine.connect() as connection:
            return (await connection.execute(select(func.max(adjustments.c.id)))).scalar() or 0

    async def _today_us(self, connection: AsyncConnection) -> int:
        """The time at which to book a correction: one dated back would change months that are closed. Whoever reads a
        closed month waits until it is committed."""
        await share_lock(connection, CORRECTIONS_LOCK)
        now = await shared_now_us(connection, self._now_us)
        last_hour = (await connection.execute(select(func.max(hourly.c.hour)))).scalar() or 0
        newest = select(adjustments.c.at_us).order_by(adjustments.c.id.desc()).limit(1)
        last = max(last_hour * HOUR_US, (await connection.execute(newest)).scalar() or 0)
        if last > now + MINUTE_US and not self._trusts_clock:
            raise StateError(
                f"the clock says {moment_of(now):%Y-%m-%d %H:%M} UTC and the books go on to "
                f"{moment_of(last):%Y-%m-%d %H:%M}: dated back, a correction would change months that are closed. Set "
                "the clock; if it is right, and another was ahead when those were booked, add --clock-is-right"
            )
        return now


class _Place(NamedTuple):
    """A request's hour and dimension in the sums, how often its price was corrected, and its cost by now.
    `is_unpriced`: it has no price, and no correction has given it one. `end_users`: the end user's day, if budgets
    count its corrections."""

    hour: int
    dimension_id: int
    corrections: int
    is_unpriced: bool
    cost_pico_usd: int
    end_users: Place | None


async def _places(connection: AsyncConnection, numbers: Set[bytes]) -> dict[bytes, _Place]:
    """The place of each request that exists."""
    corrections = (
        select(func.count())
        .where(adjustments.c.request_id == entries.c.request_id, adjustments.c.kind == "reprice")
        .scalar_subquery()
    )
    is_unpriced = entries.c.list_pico_usd.is_(None)
    end_user = case((IS_ORPHANED, None), else_=entries.c.end_user)
    columns = (entries.c.request_id, entries.c.accepted_at_us, entries.c.dimension_id, corrections, is_unpriced)
    query = select(*columns, CORRECTED_COST, dimensions.c.key_id, end_user)
    source = query.join_from(entries, dimensions, dimensions.c.id == entries.c.dimension_id)
    found = await connection.execute(source.where(entries.c.request_id.in_(numbers)))
    return {
        bytes(number): _Place(
            at_us // HOUR_US,
            dimension_id,
            count,
            bool(unpriced) and not count,
            int(cost),
            None if name is None else place_of(key_id, name, at_us),
        )
        for number, at_us, dimension_id, count, unpriced, cost, key_id, name in found
    }


def _rows(batch: Sequence[Adjustment], places: Mapping[bytes, _Place], at_us: int, author: str) -> list[dict[str, Any]]:
    """Rows for the corrections whose request exists and has as many corrections as they assume, each once, in the order
    in which every writer books them."""
    rows: dict[tuple[bytes, str, str], dict[str, Any]] = {}
    for one in batch:
        number = bytes.fromhex(one.request_id)
        if number in places and one.after in (None, places[number].corrections):
            row = _row(one, number, places[number], at_us, author)
            rows.setdefault(_identity(row), row)
    return [rows[identity] for identity in sorted(rows)]


def _row(one: Adjustment, number: bytes, place: _Place, at_us: int, author: str) -> dict[str, Any]:
    return {
        "at_us": at_us,
        "hour": place.hour,
        "dimension_id": place.dimension_id,
        "request_id": number,
        "kind": one.kind,
        "reference": one.reference,
        "amount_pico_usd": one.amount_pico_usd,
        "reason": one.reason,
        "author": author,
    }


def _identity(row: Mapping[str, Any]) -> tuple[bytes, str, str]:
    return row["request_id"], row["kind"], row["reference"]


async def _insert_new(
    connection: AsyncConnection, rows: Sequence[dict[str, Any]], places: Mapping[bytes, _Place]
) -> list[dict[str, Any]]:
    """Inserts rows that were not booked before, adds them to the sums, and returns them."""
    if not rows:
        return []
    booked = adjustments.c.request_id, adjustments.c.kind, adjustments.c.reference
    insert = insert_or_ignore(connection.dialect, adjustments, *(column.name for column in booked))
    inserted = await connection.execute(insert.returning(*booked), rows)
    identities = {(bytes(row["request_id"]), row["kind"], row["reference"]) for row in inserted.mappings()}
    new = [row for row in rows if _identity(row) in identities]
    await connection.run_sync(add_to_rollups, _sums(new, places))
    of_end_users: dict[Place, int] = defaultdict(int)
    for row in new:
        if (place := places[row["request_id"]].end_users) is not None:
            of_end_users[place] += row["amount_pico_usd"]
    await connection.run_sync(add_to_end_users, of_end_users)
    return new


class _Group(NamedTuple):
    """The totals of one dimension in a period, and its most expensive hour. `reconciled_pico_usd` was booked for
    provider's bills so far, and is not in `pico_usd`."""

    hour: int
    dimension_id: int
    pico_usd: int
    tokens: int
    requests: int
    unpriced_tokens: int
    reconciled_pico_usd: int


async def _groups_of(connection: AsyncConnection, difference: Difference) -> list[_Group]:
    """The groups of the difference's period, provider and models, in an order that does not tell which was shipped
    first."""
    first, end = difference.since_us // HOUR_US, difference.until_us // HOUR_US
    of_it = (
        dimensions.c.provider == difference.provider,
        dimensions.c.upstream_model.in_(difference.upstream_models),
        dimensions.c.is_simulated.is_(False),
    )
    amounts = (
        select(adjustments.c.dimension_id, func.sum(adjustments.c.amount_pico_usd))
        .join(dimensions, dimensions.c.id == adjustments.c.dimension_id)
        .where(adjustments.c.hour >= first, adjustments.c.hour < end, adjustments.c.kind == "reconciliation", *of_it)
        .group_by(adjustments.c.dimension_id)
    )
    reconciled = {dimension_id: int(amount) for dimension_id, amount in await connection.execute(amounts)}
    paid = [hourly.c[name] for name in PAID_COLUMNS]
    cost: ColumnElement[int] = sum(paid, hourly.c.adjustment_pico_usd)
    tokens = hourly.c.input_tokens + hourly.c.output_tokens
    unpriced = hourly.c.unpriced_requests - hourly.c.priced_later_requests
    share = tokens * unpriced / func.nullif(hourly.c.requests, 0)
    figures = (cost, tokens, hourly.c.requests, func.coalesce(share, 0))
    query = (
        select(hourly.c.hour, dimensions.c.id, dimensions.c.digest, *figures)
        .join(dimensions, dimensions.c.id == hourly.c.dimension_id)
        .where(hourly.c.hour >= first, hourly.c.hour < end, *of_it)
        .order_by(cost.desc(), hourly.c.hour)
    )
    found: dict[bytes, _Group] = {}
    for hour, dimension_id, digest, *row in await connection.execute(query):
        booked = reconciled.get(dimension_id, 0)
        before = found.get(digest, _Group(hour, dimension_id, -booked, 0, 0, 0, booked))
        found[digest] = _Group(*before[:2], *map(operator.add, before[2:], (*map(int, row), 0)))
    return [found[digest] for digest in sorted(found)]


def _shares(amount_pico_usd: int, groups: Sequence[_Group]) -> dict[tuple[int, int], int]:
    """Divides the amount, with all that was reconciled before, exactly: in proportion to cost; without any, to tokens,
    else to requests. So it does not matter in how many steps, or after what mistakes, a bill is booked. Shares of 0 are
    omitted."""
    by_figure = ([max(0, value) for value in figure] for figure in list(zip(*groups, strict=True))[2:6])
    costs, tokens, requests, unpriced = by_figure
    all_of_it = amount_pico_usd + sum(one.reconciled_pico_usd for one in groups)
    if all_of_it > 0 and (priced := sum(tokens) - sum(unpriced)) > 0:
        whole = sum(costs)  # requests without a price are in the amount, and cost what the others do
        costs = [cost + one * whole // priced for cost, one in zip(costs, unpriced, strict=True)]
    weights = next((each for each in (costs, tokens, requests) if any(each)), [1] * len(groups))
    weight = sum(weights)
    ends = [all_of_it * upto // weight for upto in accumulate(weights, initial=0)]
    shares = {
        group[:2]: end - start - group.reconciled_pico_usd
        for group, (start, end) in zip(groups, pairwise(ends), strict=True)
    }
    return {place: share for place, share in shares.items() if share}


def _sums(
    rows: Sequence[dict[str, Any]], places: Mapping[bytes, _Place] = MappingProxyType({})
) -> dict[tuple[int, int], dict[str, Any]]:
    """What the rows add to the sums; `places` are those of their requests before."""
    sums: dict[tuple[int, int], dict[str, Any]] = {}
    without_price = {number for number, place in places.items() if place.is_unpriced}
    costs = {number: place.cost_pico_usd for number, place in places.items()}
    for row in rows:
        nothing = {**dict.fromkeys((*SUMS, *LARGEST, RANKED), 0), **dict.fromkeys(SKETCHES, b"")}
        one = sums.setdefault((row["hour"], row["dimension_id"]), nothing)
        one["adjusted_requests"] += 1
        one[RANKED] += 1
        one["adjustment_pico_usd"] += row["amount_pico_usd"]
        if (number := row.get("request_id")) is None:
            continue
        if row["kind"] == "reprice" and number in without_price:
            one["priced_later_requests"] += 1
            without_price.remove(number)
        costs[number] += row["amount_pico_usd"]
        one["largest_pico_usd"] = max(one["largest_pico_usd"], costs[number])
    return {key: sums[key] for key in sorted(sums)}
