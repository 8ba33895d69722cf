"""Reads what each complete UTC day of the ledger cost, and today so far. Knows a protocol; reads no clock."""

from calendar import monthrange
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from gateway.instants import DAY_US
from gateway.limits.spending import counted_pico_usd
from gateway.reports.daily_costs import DailyCost, DailyHistory
from gateway.sums import Dimension, ReportStore, SumsQuery, TooManyGroups

HISTORY_DAYS = 90
"""Default length of the training history, the same for every page and command so that a month has one forecast."""
MANY = 8
"""From this many names on, their sums are read in one query."""
MOST_GROUPS = 200_000
EPOCH_DAY = date(1970, 1, 1)


async def read_daily_costs(
    store: ReportStore, filters: Mapping[Dimension, str | None], now_us: int, days: int, *, of_budget: bool = False
) -> DailyHistory:
    """At most `days` complete days of training history, ending yesterday. The partial day on which the ledger began is
    left out of it, but included in the month. Sums what is booked or, with `of_budget`, what a budget counts.
    """
    span = await _span(store, now_us, days)
    by: tuple[Dimension, ...] = ("day", "status") if of_budget else ("day",)
    costs: dict[str | None, int] = {}
    for row in await store.sums(SumsQuery(*span.period_us, by, filters, money_alone=True)):
        cost = counted_pico_usd(row) if of_budget else row.corrected_cost_pico_usd
        costs[row.group["day"]] = costs.get(row.group["day"], 0) + cost
    return span.history(costs)


async def read_budgets_costs(
    store: ReportStore,
    scope: Dimension,
    names: Collection[str],
    now_us: int,
    days: int,
    *,
    most_groups: int = MOST_GROUPS,
) -> dict[str, DailyHistory]:
    """`read_daily_costs` for the budgets of these names in `scope`; for many names, the sums are read once."""
    if len(names) >= MANY:
        try:
            return await _read_together(store, scope, names, await _span(store, now_us, days), most_groups)
        except TooManyGroups:
            pass  # a name without a budget
    return {name: await read_daily_costs(store, {scope: name}, now_us, days, of_budget=True) for name in names}


async def _read_together(
    store: ReportStore, scope: Dimension, names: Collection[str], span: "_Span", most_groups: int
) -> dict[str, DailyHistory]:
    costs: dict[str, dict[str | None, int]] = {name: {} for name in names}
    by: tuple[Dimension, ...] = (scope, "day", "status")
    for row in await store.sums(SumsQuery(*span.period_us, by, most_groups=most_groups, money_alone=True)):
        own, day = costs.get(row.group[scope] or ""), row.group["day"]
        if own is not None:
            own[day] = own.get(day, 0) + counted_pico_usd(row)
    return {name: span.history(own) for name, own in costs.items()}


@dataclass(frozen=True, slots=True)
class _Span:
    """UTC days since the epoch: first of the history, first of the month, today, and first of the next month."""

    first: int
    month: int
    today: int
    end: int

    @property
    def period_us(self) -> tuple[int, int]:
        return min(self.first, self.month) * DAY_US, self.end * DAY_US

    def history(self, costs: Mapping[str | None, int]) -> DailyHistory:
        def of(start: int) -> tuple[DailyCost, ...]:
            return tuple(DailyCost(day, costs.get(day.isoformat(), 0)) for day in map(_day, range(start, self.today)))

        booked = sum(costs.get(_day(day).isoformat(), 0) for day in range(self.today, self.end))
        return DailyHistory(of(self.first), of(self.month), booked)


async def _span(store: ReportStore, now_us: int, days: int) -> _Span:
    today = now_us // DAY_US
    seen = await store.first_and_last_us()
    first = today if seen is None else min(today, max(today - days, -(-seen[0] // DAY_US)))
    month = today - _day(today).day + 1
    return _Span(first, month, today, month + monthrange(_day(today).year, _day(today).month)[1])


def _day(number: int) -> date:
    return EPOCH_DAY + timedelta(days=number)
