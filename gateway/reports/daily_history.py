"""What each complete UTC day of the ledger has cost, and today so far. Knows a protocol; reads no clock."""

from collections.abc import Mapping
from datetime import date, timedelta

from gateway.economics.traffic import HOUR_US
from gateway.limits.spending import counted_pico_usd
from gateway.reports.daily_costs import DailyCost, DailyHistory
from gateway.sums import Dimension, ReportStore, SumsQuery

DAY_US = 24 * HOUR_US
HISTORY_DAYS = 90
"""To learn from where nobody says otherwise: every page and command, so that a month has one forecast."""
EPOCH_DAY = date(1970, 1, 1)


async def read_daily_costs(
    store: ReportStore, filters: Mapping[Dimension, str | None], now_us: int, days: int, *, of_budget: bool = False
) -> DailyHistory:
    """At most `days` complete days to learn from, the last one yesterday; the day within which the ledger began is not
    among them, but it is among those of the month. What is booked, or `of_budget` what a budget counts.
    """
    today = now_us // DAY_US
    seen = await store.first_and_last_us()
    first = today if seen is None else min(today, max(today - days, -(-seen[0] // DAY_US)))
    month = today - _day(today).day + 1
    by: tuple[Dimension, ...] = ("day", "status") if of_budget else ("day",)
    costs: dict[str | None, int] = {}
    for row in await store.sums(SumsQuery(min(first, month) * DAY_US, (today + 1) * DAY_US, by, filters)):
        cost = counted_pico_usd(row) if of_budget else row.corrected_cost_pico_usd
        costs[row.group["day"]] = costs.get(row.group["day"], 0) + cost

    def of(start: int) -> tuple[DailyCost, ...]:
        return tuple(DailyCost(day, costs.get(day.isoformat(), 0)) for day in map(_day, range(start, today)))

    return DailyHistory(of(first), of(month), costs.get(_day(today).isoformat(), 0))


def _day(number: int) -> date:
    return EPOCH_DAY + timedelta(days=number)
