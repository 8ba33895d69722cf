"""Sums of entries by hour and dimension, as the rows of `hourly`. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from gateway.instants import HOUR_US
from gateway.ledger.entry import Entry
from gateway.storage.rows.bounded import finite, micros, money
from gateway.storage.rows.dimension import Dimension
from gateway.storage.rows.entry_rows import FIGURES, EntryRows, Figures
from gateway.storage.rows.paid_parts import PaidPart
from gateway.storage.sums.sketch import sketch
from gateway.storage.tables.columns import BOUND_COLUMNS, COST_COLUMNS, PAID_COLUMNS, TOKEN_COLUMNS, TOOL_COLUMNS

DAY_HOURS = 24
SUMS = (
    "requests",
    "unpriced_requests",
    "estimated_requests",
    "unbounded_requests",
    *TOKEN_COLUMNS,
    *TOOL_COLUMNS,
    *COST_COLUMNS,
    *BOUND_COLUMNS,
    "gpu_us",
    "total_us",
    "adjusted_requests",
    "priced_later_requests",
    "adjustment_pico_usd",
)
LARGEST = ("largest_pico_usd", "largest_total_us", "largest_first_token_us")
"""Upper bounds on the figures of single requests, corrections included. They cover as many requests and corrections as
RANKED says."""
RANKED = "ranked"
PAID = slice(FIGURES.index(PAID_COLUMNS[0]), FIGURES.index("list_pico_usd"))
TOTAL_US = FIGURES.index("total_us")
SKETCHES = ("time_to_first_token_sketch", "decode_sketch")


@dataclass(slots=True)
class Rollup:
    """The sums of one hour and dimension, as they accumulate."""

    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys((*SUMS, RANKED), 0))
    largest_pico_usd: int = 0
    largest_total_us: int = 0
    first_token_seconds: list[float] = field(default_factory=list[float])
    decode_speeds: list[float] = field(default_factory=list[float])

    def add(self, entries: Sequence[Entry], figures: Sequence[Figures]) -> None:
        """Adds entries, given with the `figures_of` each."""
        for name, total in zip(FIGURES, map(_sum, zip(*figures, strict=True)), strict=True):
            self.sums[name] += total
        self.sums["requests"] += len(entries)
        self.sums[RANKED] += len(entries)
        self.largest_pico_usd = max(self.largest_pico_usd, *[_sum(one[PAID]) for one in figures])
        self.largest_total_us = max(self.largest_total_us, *[one[TOTAL_US] or 0 for one in figures])
        for entry in entries:
            self._add_bounds(entry)
            if (first := finite(entry.time_to_first_token_seconds)) is not None:
                self.first_token_seconds.append(first)
            if (speed := finite(entry.decode_tokens_per_second)) is not None:
                self.decode_speeds.append(speed)

    def _add_bounds(self, entry: Entry) -> None:
        sums, upper = self.sums, entry.cost_upper_pico_usd
        sums["unpriced_requests"] += entry.cost is None
        sums["estimated_requests"] += entry.is_usage_estimated
        sums["unbounded_requests"] += upper is None
        sums["lower_pico_usd"] += money(entry.cost_lower_pico_usd) or 0
        sums["upper_pico_usd"] += money(upper) or 0

    def give(self, part: PaidPart) -> None:
        """Moves a part of an added cost to another rollup."""
        self._move(part, -1)
        self.sums["upper_pico_usd"] -= part.upper_of_entry_pico_usd

    def take(self, part: PaidPart) -> None:
        """Receives a part of a cost from another rollup: money only, no request."""
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
            "largest_pico_usd": self.largest_pico_usd,
            "largest_total_us": self.largest_total_us,
            "largest_first_token_us": micros(max(self.first_token_seconds, default=0.0)),
            "time_to_first_token_sketch": sketch(self.first_token_seconds),
            "decode_sketch": sketch(self.decode_speeds),
        }


Rows = dict[tuple[int, int], dict[str, Any]]
"""(hour or day, dimension id) -> the row's other columns, in the order in which every writer must lock the rows."""


def _sum(numbers: tuple[int | None, ...]) -> int:
    return sum(filter(None, numbers))


def roll_up(rows: Iterable[EntryRows], id_of: Callable[[Dimension], int]) -> Rows:
    """Sums by hour and dimension; costs billed elsewhere are counted there."""
    own: dict[tuple[int, Dimension], list[EntryRows]] = {}
    rollups: dict[tuple[int, int], Rollup] = {}
    for one in rows:
        own.setdefault((one.entry.intent.accepted_at_us // HOUR_US, one.dimension), []).append(one)
    for (hour, dimension), group in own.items():
        rollup = rollups.setdefault((hour, id_of(dimension)), Rollup())
        rollup.add([one.entry for one in group], [one.figures for one in group])
        for part in chain.from_iterable([one.paid_parts for one in group]):
            rollup.give(part)
            rollups.setdefault((hour, id_of(part.dimension)), Rollup()).take(part)
    return {key: rollups[key].row() for key in sorted(rollups)}


def by_day(hours: Rows) -> Rows:
    """The same sums by day."""
    days: Rows = {}
    for (hour, dimension_id), row in hours.items():
        day = days.setdefault((hour // DAY_HOURS, dimension_id), {})
        for name, value in row.items():
            if name not in day:
                day[name] = value
            else:
                day[name] = max(day[name], value) if name in LARGEST else day[name] + value
    return {key: days[key] for key in sorted(days)}
