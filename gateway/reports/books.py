"""The reports of the admin API, put together from the ledger's sums. Knows protocols only; reads no clock itself."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Literal, cast

from gateway.economics.rent import RentHistory
from gateway.errors import InvalidRequest
from gateway.instants import HOUR_US, moment_of
from gateway.money import format_usd
from gateway.reports.cache_savings import saved_by_caches
from gateway.reports.gpu_books import Bounds, GpuBooks
from gateway.reports.savings import BY, savings
from gateway.reports.views import (
    CostQuery,
    CostRow,
    CostTable,
    Overview,
    PeriodQuery,
    SpendPoint,
    Utilisation,
)
from gateway.routing.snapshot import Snapshot
from gateway.stores import SHADOW
from gateway.sums import TIMES, BookStore, Dimension, Sums, SumsQuery, TooManyGroups

DEFAULT_DAYS = 30
MOST_ROWS = 100_000
HOURLY_UP_TO_US = 3 * 24 * HOUR_US
MTOK = 10**6
COUNTS = ("requests", "successful_requests", "input_tokens", "output_tokens")
MONEY = ("input_pico_usd", "cached_input_pico_usd", "cache_write_pico_usd", "output_pico_usd")
OWNERS: tuple[Dimension, ...] = ("team", "project", "tag")
SIMULATED: Dimension = "is_simulated"


@dataclass(frozen=True, slots=True)
class BooksOf:
    """What the books need to know of a deployment besides its ledger. `rented` are GPUs that it pays or paid for."""

    snapshot: Callable[[], Snapshot]
    rented: Callable[[], Awaitable[Sequence[RentHistory]]]
    now_us: Callable[[], int]


@dataclass(frozen=True, slots=True)
class Grouped:
    """The answer to one question, and its finer parts (by model, operation, status and whether simulated too)."""

    query: SumsQuery
    groups: Sequence[Sums]
    parts: Sequence[Sums]


class Books:
    """Costs, overview and utilisation. All sums are the ledger's own, corrections included."""

    def __init__(self, store: BookStore, deployment: BooksOf) -> None:
        self._store = store
        self._of = deployment
        self.gpus = GpuBooks(store, deployment.rented, deployment.now_us)

    def now_us(self) -> int:
        return self._of.now_us()

    def bounds(self, query: PeriodQuery) -> Bounds:
        """The asked period, or the last 30 days to the end of this hour. Raises InvalidRequest for an empty one."""
        since, until = query.bounds()
        until_us = until if until is not None else (self.now_us() // HOUR_US + 1) * HOUR_US
        since_us = since if since is not None else max(0, until_us - DEFAULT_DAYS * 24 * HOUR_US)  # no year before 1
        if since_us >= until_us:
            raise InvalidRequest("`since` must be before `until`.", param="since")
        return Bounds(since_us, until_us)

    async def costs(self, query: CostQuery) -> CostTable:
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
            raise InvalidRequest(
                f"This report would have more than {MOST_ROWS:,} rows. Choose a shorter period, fewer dimensions or a "
                "filter; the FOCUS export has no such limit.",
                param="by",
            ) from error
        rows = await _rows(table)
        unallocated = None if owner is None else _cost(one for one in owned if one.group[owner] is None)
        is_whole = not (filters or query.costs_alone)
        idle = await self.gpus.idle(bounds) if is_whole else None
        spent = _cost(total.groups)
        booked_us = await self._store.first_and_last_us()
        return CostTable(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            books_begin=None if booked_us is None else moment_of(booked_us[0]),
            time_zone=query.time_zone,
            as_of=query.as_of,
            by=list(by),
            key_names=await self._key_names(rows) if "key" in by else {},
            rows=rows,
            total=await _total(total),
            unallocated_usd=None if unallocated is None else format_usd(unallocated),
            unallocated_share=None if unallocated is None or not spent else unallocated / spent,
            shadow_usd=format_usd(_cost(one for one in total.parts if one.group["operation"] == SHADOW)),
            idle=idle,
            savings=savings(self._of.snapshot(), total.parts, idle) if is_whole else [],
            saved_by_prompt_caches_usd=format_usd(saved_by_caches(self._of.snapshot(), total.parts)),
        )

    async def overview(self, query: PeriodQuery) -> Overview:
        bounds = self.bounds(query)
        bucket: Literal["hour", "day"] = "hour" if bounds.until_us - bounds.since_us <= HOURLY_UP_TO_US else "day"
        asked = SumsQuery(bounds.since_us, bounds.until_us, ("model",))
        models, total, _ = await self._read(asked)
        # Apart: all of it together would be a row for each team on each day.
        owned = await self._store.sums(replace(asked, by=("team",)))
        spend = await self._store.sums(replace(asked, by=(bucket, "model")))
        idle = await self.gpus.idle(bounds)
        teamless, spent = _cost(one for one in owned if one.group["team"] is None), _cost(total.groups)
        return Overview(
            since=moment_of(bounds.since_us),
            until=moment_of(bounds.until_us),
            bucket=bucket,
            total=await _total(total),
            models=await _rows(models),
            savings=savings(self._of.snapshot(), total.parts, idle),
            idle=idle,
            unallocated_share=teamless / spent if spent else None,
            unallocated_usd=format_usd(teamless),
            spend=[
                SpendPoint(
                    start=_start(row.group[bucket] or ""),
                    model=row.group["model"] or "none",
                    requests=row.requests,
                    cost_usd=format_usd(row.corrected_cost_pico_usd),
                )
                for row in spend
            ],
        )

    async def utilisation(self, query: PeriodQuery) -> Utilisation:
        return await self.gpus.utilisation(self.bounds(query))

    async def _key_names(self, rows: Sequence[CostRow]) -> dict[str, str]:
        """Of the keys that the rows are of; one that is in no table of keys has none."""
        return dict(await self._store.key_names({key_id for row in rows if (key_id := row.group["key"])}))

    async def _read(
        self, asked: SumsQuery, *others: tuple[Dimension, ...], with_latencies: bool = True
    ) -> tuple[Grouped, Grouped, list[Sequence[Sums]]]:
        """As asked, in total, and by each of the others: the books are read once for all of it."""
        tables = [replace(one, with_latencies=with_latencies) for one in (asked, replace(asked, by=()))]
        parts = [
            replace(one, by=tuple(dict.fromkeys((*one.by, *BY, SIMULATED))), with_latencies=False, most_groups=None)
            for one in tables
        ]
        more = [replace(asked, by=by) for by in others]
        groups, total, finer, by_kind, *rest = await self._store.sums_together([*tables, *parts, *more])
        return Grouped(tables[0], groups, finer), Grouped(tables[1], total, by_kind), rest


async def _total(table: Grouped) -> CostRow:
    rows = await _rows(table)
    return rows[0] if rows else empty_row()


async def _rows(table: Grouped) -> list[CostRow]:
    """Dearest first, or in the order of their times.

    Prices per input and output token are of the requests priced by token alone: GPU time is one price for both, and
    is in the blended price only. What has no known price divides nothing.
    """
    # Off the event loop: keys by day and model are many rows, and answers pass here too.
    return await asyncio.to_thread(_cost_rows, table)


def _cost_rows(table: Grouped) -> list[CostRow]:
    """Each group with what its finer parts say of unit prices, and of what nobody bills: that can be an attempt's money
    alone, beside no simulated request."""
    by = table.query.by
    simulated: Counter[tuple[str | None, ...]] = Counter()
    for part in table.parts:
        if part.group[SIMULATED] == "true":
            simulated[_key(part, by)] += part.corrected_cost_pico_usd
    known = [part for part in table.parts if not part.is_wholly_unpriced]
    priced = joined(known, by)
    timed = {part.group["model"] for part in known if part.compute_pico_usd}
    split = [part for part in known if part.group["model"] not in timed and not part.was_wholly_unpriced]
    is_same = len(split) == len(known) and not any(part.unpriced_requests for part in known)
    by_token = priced if is_same else joined(split, by, as_booked=True)
    ordered = sorted(table.groups, key=lambda group: -group.corrected_cost_pico_usd)
    if by and by[0] in TIMES:
        ordered.sort(key=lambda group: tuple(value or "" for value in group.group.values()))
    return [cost_row(one, priced.get(key := _key(one, by)), by_token.get(key), simulated[key]) for one in ordered]


def cost_row(sums: Sums, priced: Sums | None, by_token: Sums | None, simulated_pico_usd: int = 0) -> CostRow:
    """One group with its unit prices; `priced` is the part of it that has any, `by_token` what was priced by token."""
    cost = sums.corrected_cost_pico_usd
    known, tokened = priced or Sums({}), by_token or Sums({})
    input_pico = tokened.input_pico_usd + tokened.cached_input_pico_usd + tokened.cache_write_pico_usd
    latencies = sums.latencies
    return CostRow(
        group={str(name): value for name, value in sums.group.items()},
        requests=sums.requests,
        successful_requests=sums.successful_requests,
        input_tokens=sums.input_tokens,
        cached_input_tokens=sums.cached_input_tokens,
        output_tokens=sums.output_tokens,
        reasoning_tokens=sums.reasoning_tokens,
        web_searches=sums.web_searches,
        file_searches=sums.file_searches,
        other_tool_calls=sums.other_tool_calls,
        gpu_seconds=sums.gpu_seconds,
        cost_usd=format_usd(cost),
        list_cost_usd=format_usd(sums.list_pico_usd),
        input_usd_per_mtok=_per_mtok(input_pico, tokened.input_tokens),
        output_usd_per_mtok=_per_mtok(tokened.output_pico_usd, tokened.output_tokens),
        blended_usd_per_mtok=_per_mtok(cost, known.input_tokens + known.output_tokens),
        cost_per_request_usd=_each(cost, known.requests),
        cost_per_successful_request_usd=_each(cost, known.successful_requests),
        corrections_usd=format_usd(sums.adjustment_pico_usd),
        unpriced_requests=sums.still_unpriced_requests,
        estimated_requests=sums.estimated_requests,
        simulated_requests=sums.simulated_requests,
        simulated_usd=format_usd(simulated_pico_usd),
        cost_lower_usd=format_usd(sums.lower_pico_usd),
        cost_upper_usd=None if sums.unbounded_requests else format_usd(sums.upper_pico_usd),
        time_to_first_token_p50_seconds=latencies.time_to_first_token_p50_seconds if latencies else None,
        time_to_first_token_p95_seconds=latencies.time_to_first_token_p95_seconds if latencies else None,
        time_to_first_token_p99_seconds=latencies.time_to_first_token_p99_seconds if latencies else None,
        decode_tokens_per_second_p50=latencies.decode_tokens_per_second_p50 if latencies else None,
        decode_tokens_per_second_p5=latencies.decode_tokens_per_second_p5 if latencies else None,
    )


def empty_row() -> CostRow:
    """No requests."""
    return cost_row(Sums({}), None, None)


def joined(
    parts: Sequence[Sums], by: Sequence[Dimension], *, as_booked: bool = False
) -> dict[tuple[str | None, ...], Sums]:
    """What unit prices divide, added up by `by`: money, and the counts of what is known to have cost it."""
    groups: dict[tuple[str | None, ...], Sums] = {}
    for part in parts:
        before = groups.get(key := _key(part, by), Sums({}))
        counts = {name: part.priced(getattr(part, name), as_booked=as_booked) for name in COUNTS}
        more = counts | {name: getattr(part, name) for name in MONEY}
        groups[key] = Sums({}, **{name: getattr(before, name) + count for name, count in more.items()})
    return groups


def _cost(groups: Iterable[Sums]) -> int:
    return sum(one.corrected_cost_pico_usd for one in groups)


def _key(sums: Sums, by: Sequence[Dimension]) -> tuple[str | None, ...]:
    return tuple(sums.group[name] for name in by)


def _each(pico: int, requests: int) -> str | None:
    return format_usd(round(Fraction(pico, requests))) if requests else None


def _per_mtok(pico: int, tokens: int) -> str | None:
    return format_usd(round(Fraction(pico * MTOK, tokens))) if tokens else None


def _start(label: str) -> datetime:
    moment = datetime.fromisoformat(label.replace("Z", "+00:00"))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
