"""What each complete UTC day of the ledger has cost, and today so far. Knows a protocol; reads no clock."""

from collections.abc import Mapping
from datetime import date, timedelta

from gateway.economics.traffic import HOUR_US
from gateway.reports.daily_costs import DailyCost
from gateway.sums import Dimension, ReportStore, SumsQuery

DAY_US = 24 * HOUR_US
EPOCH_DAY = date(1970, 1, 1)


async def read_daily_costs(
    store: ReportStore, filters: Mapping[Dimension, str | None], now_us: int, days: int
) -> tuple[tuple[DailyCost, ...], int]:
    """At most `days` complete days, oldest first and without a gap, and what today has cost so far.

    The last one is yesterday; the day within which the ledger began is left out.
    """
    today = now_us // DAY_US
    seen = await store.first_and_last_us()
    first = today if seen is None else min(today, max(today - days, -(-seen[0] // DAY_US)))
    rows = await store.sums(SumsQuery(first * DAY_US, (today + 1) * DAY_US, ("day",), filters))
    costs = {row.group["day"]: row.corrected_cost_pico_usd for row in rows}
    every = [DailyCost(day, costs.get(day.isoformat(), 0)) for day in map(_day, range(first, today + 1))]
    return tuple(every[:-1]), every[-1].cost_pico_usd


def _day(number: int) -> date:
    return EPOCH_DAY + timedelta(days=number)
