"""Sums of entries by hour and dimension, as the rows of `hourly`. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gateway.ledger.entry import Entry
from gateway.storage.bounded import finite, money
from gateway.storage.entry_rows import COST_COLUMNS, TOKEN_FIELDS, TOOL_FIELDS, Dimension, Row
from gateway.storage.paid_parts import PaidPart, paid_parts
from gateway.storage.sketch import sketch

HOUR_US = 3_600_000_000
DAY_HOURS = 24
SUMS = (
    "requests",
    "unpriced_requests",
    "estimated_requests",
    "unbounded_requests",
    *TOKEN_FIELDS,
    *TOOL_FIELDS,
    *COST_COLUMNS,
    "lower_pico_usd",
    "upper_pico_usd",
    "gpu_us",
    "total_us",
    "adjusted_requests",
    "adjustment_pico_usd",
)
FIGURES = (*TOKEN_FIELDS, *TOOL_FIELDS, *COST_COLUMNS, "gpu_us", "total_us")
SKETCHES = ("time_to_first_token_sketch", "decode_sketch")


@dataclass(slots=True)
class Rollup:
    """The sums of one hour and dimension, growing."""

    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMS, 0))
    first_token_seconds: list[float] = field(default_factory=list[float])
    decode_speeds: list[float] = field(default_factory=list[float])

    def add(self, entry: Entry, figures: Row) -> None:
        """`figures` are the entry's own, as `figures_of` tells them; a row of it has them too."""
        sums = self.sums
        sums["requests"] += 1
        sums["unpriced_requests"] += entry.cost is None
        sums["estimated_requests"] += entry.is_usage_estimated
        sums["unbounded_requests"] += entry.cost_upper_pico_usd is None
        for name in FIGURES:
            if figure := figures[name]:
                sums[name] += figure
        sums["lower_pico_usd"] += money(entry.cost_lower_pico_usd) or 0
        sums["upper_pico_usd"] += money(entry.cost_upper_pico_usd) or 0
        if (first := finite(entry.time_to_first_token_seconds)) is not None:
            self.first_token_seconds.append(first)
        if (speed := finite(entry.decode_tokens_per_second)) is not None:
            self.decode_speeds.append(speed)

    def give(self, part: PaidPart) -> None:
        """A part of what was added stands elsewhere."""
        self._move(part, -1)
        self.sums["upper_pico_usd"] -= part.upper_of_entry_pico_usd

    def take(self, part: PaidPart) -> None:
        """A part of what was added elsewhere stands here: money, and no request."""
        self._move(part, 1)
        self.sums["upper_pico_usd"] += part.upper_pico_usd or 0
        self.sums["unbounded_requests"] += part.upper_pico_usd is None

    def _move(self, part: PaidPart, sign: int) -> None:
        self.sums["other_pico_usd"] += sign * part.cost_pico_usd
        self.sums["list_pico_usd"] += sign * part.cost_pico_usd
        self.sums["lower_pico_usd"] += sign * part.lower_pico_usd

    def row(self) -> dict[str, Any]:
        return {
            **self.sums,
            "time_to_first_token_sketch": sketch(self.first_token_seconds),
            "decode_sketch": sketch(self.decode_speeds),
        }


Rows = dict[tuple[int, int], dict[str, Any]]
"""(hour or day, dimension id) -> the row's other columns; in the order in which every writer must lock them."""


def roll_up(entries: Iterable[tuple[int, Entry, Row]], id_of: Callable[[Dimension], int]) -> Rows:
    """By hour, of entries with their dimension's id and their figures; `id_of` knows the id of what was paid elsewhere
    too."""
    rollups: dict[tuple[int, int], Rollup] = {}
    for dimension_id, entry, figures in entries:
        hour = entry.intent.accepted_at_us // HOUR_US
        own = rollups.setdefault((hour, dimension_id), Rollup())
        own.add(entry, figures)
        for part in paid_parts(entry):
            own.give(part)
            rollups.setdefault((hour, id_of(part.dimension)), Rollup()).take(part)
    return {key: rollups[key].row() for key in sorted(rollups)}


def by_day(hours: Rows) -> Rows:
    """The same sums by day."""
    days: Rows = {}
    for (hour, dimension_id), row in hours.items():
        day = days.setdefault((hour // DAY_HOURS, dimension_id), {})
        for name, value in row.items():
            day[name] = day[name] + value if name in day else value
    return {key: days[key] for key in sorted(days)}
