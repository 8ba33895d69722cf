"""Which times of an axis are named, and how: equally far apart over months of any length. Pure.

Left to itself, ECharts begins anew each month, so that 29, Nov, 2 and 5 stood side by side.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

MOST = 16
"""Of a wide chart; on a narrow one ECharts leaves out those that have no room."""
HOUR_MS = 3_600_000
STEP_MS = {"hour": HOUR_MS, "day": 24 * HOUR_MS}
"""What else a bar may be of, weeks, months and quarters, is named bar by bar."""
STEPS = {"hour": (1, 2, 3, 6, 12, 24, 48, 168), "day": (1, 2, 4, 7, 14, 28, 91, 364)}
BY_MONTH = frozenset({"month", "quarter"})
DAY_OR_HOUR = """(value) => new Date(value).toLocaleString('en-GB', {timeZone: 'UTC',
  ...(value % 86400000 ? {hour: '2-digit', minute: '2-digit'} : {day: 'numeric', month: 'short'})})"""
MONTH = "(value) => new Date(value).toLocaleString('en-GB', {timeZone: 'UTC', month: 'short', year: 'numeric'})"


def named_times(starts: Sequence[str], each: str) -> dict[str, Any]:
    """What an axis says of its labels, where so long a time begins at each of `starts`, which rise."""
    return {":formatter": MONTH if each in BY_MONTH else DAY_OR_HOUR, "customValues": _named(starts, each)}


def _named(starts: Sequence[str], each: str) -> list[int]:
    times = [_ms(start) for start in starts]
    if each not in STEP_MS or not times:
        return times[:: -(-len(times) // MOST) or 1]
    shortest = STEP_MS[each]
    count = (times[-1] - times[0]) // shortest + 1
    step = shortest * next((n for n in STEPS[each] if count <= n * MOST), STEPS[each][-1])
    first = -(-times[0] // step) * step if each == "hour" else times[0]
    return list(range(first, times[-1] + 1, step))


def _ms(start: str) -> int:
    moment = datetime.fromisoformat(start)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
