"""The period before a page's own: what was spent in it, and whether the books cover all of it. A partial period is not
compared with a whole one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dashboards import display, markup
from dashboards.markup import Cell
from dashboards.periods import Period

TWO_DAYS_HOURS = 48
NOT_COMPARED = Cell(display.UNKNOWN, tone="muted")


@dataclass(frozen=True, slots=True)
class Earlier:
    """`books_begin` is the ledger's first hour; None where nothing is booked yet."""

    period: Period
    books_begin: datetime | None

    @property
    def is_whole(self) -> bool:
        """Whether the books cover the whole period, so that it can be compared with."""
        return self.books_begin is not None and self.books_begin <= self.period.since

    @property
    def is_cut(self) -> bool:
        """Whether the books begin within the period."""
        return self.books_begin is not None and self.period.since < self.books_begin < self.period.until

    def why_not(self) -> str:
        """The sentence that is shown instead of a change."""
        if self.books_begin is None:
            return "There is no earlier period to compare with."
        begin = f"The books begin on {display.group_time('hour', self.books_begin.isoformat())} UTC"
        if not self.is_cut:
            return f"{begin}: there is no earlier period to compare with."
        missing = _length(self.books_begin - self.period.since)
        before = display.period(**self.period.bounds())
        return f"{begin}, {missing} into the period before ({before}), so changes against it are not shown."


def earlier_of(period: Period, books_begin: str | None) -> Earlier:
    """The period before a page's own; `books_begin` as in a report."""
    return Earlier(period.before(), None if books_begin is None else datetime.fromisoformat(books_begin))


@dataclass(frozen=True, slots=True)
class Compared:
    """What was spent before: in total, by the groups without a row, and by group. None is not compared."""

    total: str | None
    others: str | None
    groups: Mapping[tuple[str | None, ...], str] | None

    def change(self, row: Mapping[str, Any]) -> Cell:
        if self.groups is None:
            return NOT_COMPARED
        return change_cell(display.cost(row), self.groups.get(tuple(row["group"].values())))


def compared(found: Mapping[str, Any]) -> Compared:
    """From a report. Of groups by time, only the total: no such group is in both periods."""
    before = found["earlier"]
    if before is None:
        return Compared(None, None, None)
    pairs = zip(found["rows"], before["rows"], strict=True)
    groups = {tuple(row["group"].values()): display.cost(then) for row, then in pairs if then is not None}
    others = display.cost(before["others"]) if before["others"] else None
    return Compared(display.cost(before["total"]), others, groups if before["is_by_group"] else None)


def change_cell(now: str, before: str | None) -> Cell:
    """`new` for a group that was not there before. An unknown price is not compared: it does not mean zero."""
    if before is None:
        return Cell("new", tone="muted")
    if before == display.NO_PRICE:
        return Cell(display.UNKNOWN, tone="muted", title="price unknown before")
    then = f"{display.exact_dollars(before)} before"
    if now == display.NO_PRICE:
        return Cell(display.UNKNOWN, tone="muted", title=then)
    return Cell(display.change(now, before) or display.UNKNOWN, tone="muted", title=then)


def _length(time: timedelta) -> str:
    """`12 days`; below two days, in hours."""
    hours = -(-time // timedelta(hours=1))
    return markup.counted(hours, "hour") if hours < TWO_DAYS_HOURS else markup.counted(time.days, "day")
