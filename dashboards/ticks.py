"""Labels of a time axis: which times have one, and their format. Equally spaced, also across months. Pure.

ECharts' own labels start again in each month, so that 29, Nov, 2 and 5 would stand side by side.
"""

from collections.abc import Sequence
from typing import Any

from dashboards.display import parse_utc

MOST = 16
"""Labels on a wide chart; on a narrow one ECharts leaves out those that have no room."""
HOUR_MS = 3_600_000
STEP_MS = {"hour": HOUR_MS, "day": 24 * HOUR_MS}
"""Weeks, months and quarters differ in length or start anywhere: their labels are put at starts of bars."""
STEPS = {"hour": (1, 2, 3, 6, 12, 24, 48, 168, 336, 672, 2184, 8736), "day": (1, 2, 4, 7, 14, 28, 91, 364)}
LINE_PIXELS = 14
BY_MONTH = frozenset({"month", "quarter"})
DAY_OR_HOUR = """(value) => new Date(value).toLocaleString('en-GB', {timeZone: 'UTC',
  ...(value % 86400000 ? {hour: '2-digit', minute: '2-digit'} : {day: 'numeric', month: 'short'})})"""
DAY_OF_A_YEAR_OR_HOUR = rf"""(value) => ({DAY_OR_HOUR})(value)
  + (value % 86400000 ? '' : '\n' + new Date(value).getUTCFullYear())"""
"""The year below the day: beside it every second label would have no room."""
MONTH = "(value) => new Date(value).toLocaleString('en-GB', {timeZone: 'UTC', month: 'short', year: 'numeric'})"


def named_times(starts: Sequence[str], each: str) -> dict[str, Any]:
    """Options of an axis on which an `each` (hour, day, week, month, quarter) begins at each of the sorted `starts`."""
    shown = {"customValues": _named(starts, each)}
    if each in BY_MONTH:
        return {":formatter": MONTH, **shown}
    if len({parse_utc(start).year for start in (*starts[:1], *starts[-1:])}) > 1:
        return {":formatter": DAY_OF_A_YEAR_OR_HOUR, "lineHeight": LINE_PIXELS, **shown}
    return {":formatter": DAY_OR_HOUR, **shown}


def _named(starts: Sequence[str], each: str) -> list[int]:
    times = [round(parse_utc(start).timestamp() * 1000) for start in starts]
    if each not in STEP_MS or not times:
        return times[:: -(-len(times) // MOST) or 1]
    shortest = STEP_MS[each]
    count = (times[-1] - times[0]) // shortest + 1
    step = shortest * next((n for n in STEPS[each] if count <= n * MOST), STEPS[each][-1])
    first = -(-times[0] // step) * step if each == "hour" else times[0]
    return list(range(first, times[-1] + 1, step))
