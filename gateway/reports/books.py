"""Cost reports of the admin API, built from the ledger's sums. Knows protocols only; reads no clock itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, cast

from gateway.economics.rent import RentHistory
from gateway.errors import InvalidRequest
from gateway.instants import HOUR_US, microseconds, moment_of
from gateway.ledger.entry import JUDGE, SHADOW
from gateway.money import format_usd, known_usd
from gateway.reports.cache_savings import saved_by_caches
from gateway.reports.cost_rows import SIMULATED, Grouped, Rows, added_up, empty_row, rows_of
from gateway.reports.gpu_books import Bounds, GpuBooks
from gateway.reports.savings import BY, savings
from gateway.reports.views import (
    ALL,
    CostQuery,
    CostRow,
    CostTable,
    EarlierCost,
    EarlierCosts,
    Overview,
    PeriodQuery,
    Shown,
    SpendPoint,
    Utilisation,
)
from gateway.routing.snapshot import Snapshot
from gateway.sums import TIMES, BookStore, Dimension, Sums, SumsQuery, TooManyGroups

DEFAULT_DAYS = 30
MOST_ROWS = 100_000
HOURLY_UP_TO_US = 3 * 24 * HOUR_US
OWNERS: tuple[Dimension, ...] = ("team", "project", "tag")


@dataclass(frozen=True, slots=True)
class BooksOf:
    """What the books need to know of a deployment besides its ledger. `rented`: GPUs that it pays or has paid for."""

    snapshot: Callable[[], Snapshot]
    rented: Callable[[], Awaitable[Sequence[RentHistory]]]
    now_us: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Then:
    """Requests and money of a comparison period, by group and in total."""

    bounds: Bounds
    is_by_group: bool
    groups: Sequence[Sums]
    total: Sums


class Books:
    """Costs, overview and utilisation. All sums are the ledger's own, corrections included."""

    def __init__(self, store: BookStore, deployment: BooksOf) -> None:
        self._store = store
        self._of = deployment
        self.gpus = GpuBooks(store, deployment.rented, deployment.now_us)

    @property
    def store(self) -> BookStore:
        return self._store

    def now_us(self) -> int:
        return self._of.now_us()

    def bounds(self, query: PeriodQuery) -> Bounds:
        """The requested period, or the last 30 days to the end of this hour. Raises InvalidRequest if it is empty."""
        since, until = query.bounds()
        until_us = until if until is not None else (self.now_us() // HOUR_US + 1) * HOUR_US
        since_us = since if since is not None else max(0, until_us - DEFAULT_DAYS * 24 * HOUR_US)  # no year before 1
        if since_us >= until_us:
            ends = "." if until is not None else ", which is the end of this hour where it is left out."
            raise InvalidRequest(f"`since` must be before `until`{ends}", param="since")
        return Bounds(since_us, until_us)

    async def known_hours(self, query: PeriodQuery, *, of: str) -> Bounds:
        """The whole hours of the requested period that the ledger covers; see Bounds.known. Raises InvalidRequest if
        there are none, and as `bounds` does."""
        bounds = self.bounds(query)
        seen = await self._store.first_and_last_us()
        if seen is None:
            raise InvalidRequest(f"The ledger is empty: {of} needs some hours of traffic.")
        return bounds.known(seen[0], self.now_us())

    async def costs(self, query: CostQuery) -> CostTable:
        if (as_of_us := query.as_of_us()) is not None:
            await self._store.await_corrections(as_of_us)
        async with self.at_one_moment() as books:
            return await books._costs(query)

    async def _costs(self, query: CostQuery) -> CostTable:
        bounds = self.bounds(query)
        by = cast("tuple[Dimension, ...]", tuple(query.dimensions()))
        filters = cast("dict[Dimension, str | None]", query.filters())
        asked = SumsQuery(
            *(bounds.since_us, bounds.until_us, by, filters, query.time_zone),
            as_of_us=query.as_of_us(),
            most_groups=MOST_ROWS,
        )
        owner: Dimension | None = next((name for name in OWNERS if name in by and name not in filters), None)
        try:
            by_owner: tuple[Dimension, ...] = () if owner is None else (owner,)
            table, total, [owned] = await self._read(asked, by_owner, with_latencies=not query.costs_alone)
        except TooManyGroups as error:
            whole = "" if "end_user" in by else "; the FOCUS export has no such limit"
            raise InvalidRequest(
                f"This report would have more than {MOST_ROWS:,} rows. Choose a shorter period, fewer dimensions or a "
                f"filter{whole}.",
                param="by",
            ) from error
        then = await self._earlier(asked, query)
        ceased = _ceased(table.groups, then)
        names = await self._key_names([*table.groups, *ceased]) if "key" in by else {}
        found = await _rows(table, query.shown(), names, ceased)
        unallocated = None if owner is None else _cost(one for one in owned if one.group[owner] is None)
        is_whole = not (filters or query.costs_alone or "end_user" in by)  # whose requests retention may have deleted
        idle = await self.gpus.idle(bounds) if is_whole else None
        spent = _cost(total.groups)
        return CostTable(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            books_begin=await self._books_begin(),
            time_zone=query.time_zone,
            as_of=query.as_of,
            by=list(by),
            key_names=names,
            groups=len(table.groups) + len(ceased),
            rows=found.rows,
            others=found.others,
            dearest=found.dearest,
            total=await _total(total),
            earlier=None if then is None else _earlier_costs(then, found.rows, len(ceased)),
            unallocated_usd=known_usd(unallocated),
            unallocated_share=None if unallocated is None or not spent else unallocated / spent,
            shadow_usd=_of_operation(total, SHADOW),
            judge_usd=_of_operation(total, JUDGE),
            idle=idle,
            savings=savings(self._of.snapshot(), total.parts, idle) if is_whole else [],
            saved_by_prompt_caches_usd=format_usd(saved_by_caches(self._of.snapshot(), total.parts)),
        )

    async def _earlier(self, asked: SumsQuery, query: PeriodQuery) -> Then | None:
        """What the same groups cost in the comparison period; groups by time are compared in total only."""
        bounds = self.compared_bounds(query.compared())
        begin = await self._books_begin()
        if bounds is None or begin is None or microseconds(begin) > bounds.since_us:
            return None
        by = () if set(asked.by) & set(TIMES) else asked.by
        at_once = replace(asked, since_us=bounds.since_us, until_us=bounds.until_us, money_alone=True)
        groups, total = await self._store.sums_together([replace(at_once, by=by), replace(at_once, by=())])
        return Then(bounds, by != (), groups if by else (), total[0] if total else Sums({}))

    def compared_bounds(self, compared: tuple[int | None, int | None]) -> Bounds | None:
        """The comparison period, if any. Raises InvalidRequest if only one end is given, or it is empty."""
        since_us, until_us = compared
        if since_us is None and until_us is None:
            return None
        if since_us is None or until_us is None or since_us >= until_us:
            raise InvalidRequest("`compare_since` must be before `compare_until`; give both.", param="compare_since")
        return Bounds(since_us, until_us)

    async def overview(self, query: PeriodQuery) -> Overview:
        async with self.at_one_moment() as books:
            return await books._overview(query)

    async def _overview(self, query: PeriodQuery) -> Overview:
        bounds = self.bounds(query)
        bucket: Literal["hour", "day"] = "hour" if bounds.until_us - bounds.since_us <= HOURLY_UP_TO_US else "day"
        asked = SumsQuery(bounds.since_us, bounds.until_us, ("model",))
        models, total, [owned] = await self._read(asked, ("team",))
        # A separate query: combined, it would be a row for each team on each day.
        spend = await self._store.sums(replace(asked, by=(bucket, "model"), money_alone=True))
        then = await self._earlier(replace(asked, by=()), query)
        idle = await self.gpus.idle(bounds)
        teamless, spent = _cost(one for one in owned if one.group["team"] is None), _cost(total.groups)
        return Overview(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            bucket=bucket,
            total=await _total(total),
            models=(await _rows(models)).rows,
            savings=savings(self._of.snapshot(), total.parts, idle),
            idle=idle,
            unallocated_share=teamless / spent if spent else None,
            unallocated_usd=format_usd(teamless),
            shadow_usd=_of_operation(total, SHADOW),
            judge_usd=_of_operation(total, JUDGE),
            spend=[
                SpendPoint(
                    start=_start(row.group[bucket] or ""),
                    model=row.group["model"] or "none",
                    requests=row.requests,
                    cost_usd=format_usd(row.corrected_cost_pico_usd),
                )
                for row in spend
            ],
            books_begin=await self._books_begin(),
            earlier=None if then is None else _earlier_costs(then, [], 0),
        )

    async def utilisation(self, query: PeriodQuery) -> Utilisation:
        async with self.at_one_moment() as books:
            return await books.gpus.utilisation(self.bounds(query))

    @asynccontextmanager
    async def at_one_moment(self) -> AsyncGenerator["Books"]:
        """These books over a store of one moment, so that the figures of a report add up however much is booked
        meanwhile."""
        rents = await self._of.rented()  # before: see BookStore.at_one_moment

        async def rented() -> Sequence[RentHistory]:
            return rents

        async with self._store.at_one_moment() as store:
            yield Books(store, replace(self._of, rented=rented))

    async def _books_begin(self) -> datetime | None:
        booked_us = await self._store.first_and_last_us()
        return None if booked_us is None else moment_of(booked_us[0])

    async def _key_names(self, groups: Sequence[Sums]) -> dict[str, str]:
        """Names of the keys in the groups; a key missing from the table of keys has none."""
        return dict(await self._store.key_names({key_id for one in groups if (key_id := one.group["key"])}))

    async def _read(
        self, asked: SumsQuery, *others: tuple[Dimension, ...], with_latencies: bool = True
    ) -> tuple[Grouped, Grouped, list[Sequence[Sums]]]:
        """Grouped as asked, in total, and by each further dimension, with a single read of the books."""
        tables = [replace(one, with_latencies=with_latencies) for one in (asked, replace(asked, by=()))]
        parts = [
            replace(one, by=tuple(dict.fromkeys((*one.by, *BY, SIMULATED))), with_latencies=False, most_groups=None)
            for one in tables
        ]
        more = [replace(asked, by=by) for by in others]
        groups, total, finer, by_kind, *rest = await self._store.sums_together([*tables, *parts, *more])
        return Grouped(tables[0], groups, finer), Grouped(tables[1], total, by_kind), rest


def _of_operation(table: Grouped, operation: str) -> str:
    return format_usd(_cost(one for one in table.parts if one.group["operation"] == operation))


async def _total(table: Grouped) -> CostRow:
    rows = (await _rows(table)).rows
    return rows[0] if rows else empty_row()


async def _rows(
    table: Grouped, shown: Shown = ALL, names: Mapping[str, str] | None = None, ceased: Sequence[Sums] = ()
) -> Rows:
    # Off the event loop, which also serves answers: keys by day and model are many rows.
    return await asyncio.to_thread(rows_of, table, shown, names, ceased)


def _ceased(groups: Sequence[Sums], then: Then | None) -> list[Sums]:
    """Groups of the comparison period that no longer occur, as empty groups, most expensive first."""
    if then is None or not then.groups:
        return []
    present = {tuple(one.group.values()) for one in groups}
    gone = [one for one in then.groups if tuple(one.group.values()) not in present]
    return [Sums(one.group) for one in sorted(gone, key=lambda one: -one.corrected_cost_pico_usd)]


def _earlier_costs(then: Then, rows: Sequence[CostRow], ceased: int) -> EarlierCosts:
    of = {tuple(one.group.values()): one for one in then.groups}
    found = [of.get(tuple(row.group.values())) for row in rows]
    shown = {id(one) for one in found}
    others = [one for one in then.groups if id(one) not in shown]
    return EarlierCosts(
        since=moment_of(then.bounds.since_us),
        until=moment_of(then.bounds.until_us),
        total=_earlier_cost(then.total),
        is_by_group=then.is_by_group,
        rows=[None if one is None else _earlier_cost(one) for one in found],
        others=_earlier_cost(added_up(others)) if others else None,
        ceased=ceased,
    )


def _earlier_cost(one: Sums) -> EarlierCost:
    return EarlierCost(
        requests=one.requests,
        unpriced_requests=one.still_unpriced_requests,
        cost_usd=format_usd(one.corrected_cost_pico_usd),
    )


def _cost(groups: Iterable[Sums]) -> int:
    return sum(one.corrected_cost_pico_usd for one in groups)


def _start(label: str) -> datetime:
    moment = datetime.fromisoformat(label.replace("Z", "+00:00"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
