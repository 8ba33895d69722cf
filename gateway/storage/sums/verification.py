"""Verifies that the sums read by reports equal what single requests and corrections add up to. Read-only.

Each day is read in one statement, so that bookings by a running gateway cannot cause a mismatch.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Final, Literal, cast

from sqlalchemy import CompoundSelect, Select, case, func, literal_column, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from gateway.clock import now_us
from gateway.instants import DAY_US, HOUR_US, moment_of
from gateway.storage.rows.entry_rows import FIGURES
from gateway.storage.sums.corrections import BESIDE_REQUESTS
from gateway.storage.sums.corrections import FIGURES as CORRECTIONS
from gateway.storage.sums.end_users import first_day_kept, mismatch_of
from gateway.storage.sums.rollup import DAY_HOURS
from gateway.storage.tables.administration import audit_log
from gateway.storage.tables.books import adjustments, circumstances, daily, entries, hourly

MOVED: Final = frozenset({"other_pico_usd", "list_pico_usd"})
"""Figures that an attempt on another bill moves from one dimension to another, within the same hour."""
OF_REQUESTS: Final = ("requests", "unpriced_requests", "estimated_requests", *FIGURES)
FIRST_PRICES: Final = "priced_later_requests"
"""Follows from corrections and their requests."""
OF_CORRECTIONS: Final = ("adjusted_requests", "adjustment_pico_usd", FIRST_PRICES)
BOUNDS: Final = ("unbounded_requests", "lower_pico_usd", "upper_pico_usd")
"""Of costs. Compared between hours and days alone, since they do not follow from a row's columns."""
COMPARED: Final = (*OF_REQUESTS, *OF_CORRECTIONS, *BOUNDS)
PAID: Final = tuple(name for name in COMPARED if name.endswith("_pico_usd") and name not in ("list_pico_usd", *BOUNDS))

Compared = Literal["requests", "corrections", "hours", "end users"]
Key = tuple[int, int | None]
"""(hour since the epoch, dimension id); None: all dimensions."""
Sums = Mapping[Key, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One figure of one day: what `compared` add up to, and what the sums of them say (the hours or, for `hours`, the
    day). `places` is the number of hours and dimensions that differ; the totals may be equal nevertheless. Of `end
    users` it is what budgets count, and `places` how many of them differ.
    """

    compared: Compared
    figure: str
    come_to: int
    sums_say: int
    places: int


@dataclass(frozen=True, slots=True)
class VerifiedDay:
    """A UTC day. `is_forgotten`: retention has deleted its requests, so that only its sums are left."""

    day: date
    requests: int
    corrections: int
    cost_pico_usd: int
    is_forgotten: bool
    mismatches: tuple[Mismatch, ...]

    @property
    def is_only_of_end_users(self) -> bool:
        """Whether what does not add up is in no report."""
        return {one.compared for one in self.mismatches} == {"end users"}


async def verify_sums(
    engine: AsyncEngine, since_us: int, until_us: int, *, now_us: Callable[[], int] = now_us
) -> AsyncIterator[VerifiedDay]:
    """Verifies every day with any data, from the day of `since_us` to the last one before `until_us`."""
    number, end = since_us // DAY_US, -(-until_us // DAY_US)
    async with engine.connect() as connection:
        forgotten = await forgotten_months(connection)
        while True:
            found = await _first_day(connection, number)
            if found is None or found >= end:
                return
            day = moment_of(found * DAY_US).date()
            rows = (await connection.execute(_statement(found))).all()
            await connection.rollback()  # ends the snapshot: the next day is read as it is then
            verified = _verified(day, rows, is_forgotten=f"{day:%Y-%m}" in forgotten)
            if verified.mismatches:  # retention may have started since; it records that before deleting
                forgotten = await forgotten_months(connection)
                await connection.rollback()
                verified = _verified(day, rows, is_forgotten=f"{day:%Y-%m}" in forgotten)
            if found >= first_day_kept(now_us()) and not verified.is_forgotten:
                verified = await _with_end_users(connection, found, verified)
            yield verified
            number = found + 1


async def _with_end_users(connection: AsyncConnection, number: int, verified: VerifiedDay) -> VerifiedDay:
    come_to, say, places = map(int, (await connection.execute(mismatch_of(number))).one())
    await connection.rollback()
    if not places:
        return verified
    mismatch = Mismatch("end users", "counted_pico_usd", come_to, say, places)
    return replace(verified, mismatches=(*verified.mismatches, mismatch))


async def forgotten_months(connection: AsyncConnection) -> frozenset[str]:
    """Months (2026-01) whose requests were deleted, by the audit log, where retention records it beforehand."""
    said = await connection.scalars(select(audit_log.c.detail).where(audit_log.c.action == "retention"))
    return frozenset(month for detail in said for month in json.loads(detail)["months"])


async def _first_day(connection: AsyncConnection, number: int) -> int | None:
    """The first day from `number` on, counted from the epoch, with any data; each table's index gives its own first."""
    firsts = (
        select(func.min(entries.c.accepted_at_us)).where(entries.c.accepted_at_us >= number * DAY_US),
        select(func.min(adjustments.c.hour)).where(adjustments.c.hour >= number * DAY_HOURS),
        select(func.min(hourly.c.hour)).where(hourly.c.hour >= number * DAY_HOURS),
        select(func.min(daily.c.day)).where(daily.c.day >= number),
    )
    found = (await connection.execute(select(*(one.scalar_subquery() for one in firsts)))).one()
    days = [at // size for at, size in zip(found, (DAY_US, DAY_HOURS, DAY_HOURS, 1), strict=True) if at is not None]
    return min(days, default=None)


def _statement(number: int) -> CompoundSelect[Any]:
    """(source, hour, dimension, each of COMPARED) of one day."""
    first, end = number * DAY_HOURS, (number + 1) * DAY_HOURS
    hour = entries.c.accepted_at_us // HOUR_US
    counted = {
        "requests": func.count(),
        "unpriced_requests": func.sum(case((entries.c.list_pico_usd.is_(None), 1), else_=0)),
        "estimated_requests": func.sum(case((circumstances.c.is_usage_estimated, 1), else_=0)),
        **{name: func.coalesce(func.sum(entries.c[name]), 0) for name in FIGURES},
    }
    corrected = {
        "adjusted_requests": func.count(),
        "adjustment_pico_usd": func.sum(adjustments.c.amount_pico_usd),
        FIRST_PRICES: func.sum(CORRECTIONS[FIRST_PRICES]),
    }
    return union_all(
        _part("requests", hour, entries.c.dimension_id, counted)
        .join_from(entries, circumstances, circumstances.c.id == entries.c.circumstance_id)
        .where(entries.c.accepted_at_us >= number * DAY_US, entries.c.accepted_at_us < (number + 1) * DAY_US)
        .group_by(hour, entries.c.dimension_id),
        _part("corrections", adjustments.c.hour, adjustments.c.dimension_id, corrected)
        .select_from(BESIDE_REQUESTS)
        .where(adjustments.c.hour >= first, adjustments.c.hour < end)
        .group_by(adjustments.c.hour, adjustments.c.dimension_id),
        _part("hours", hourly.c.hour, hourly.c.dimension_id, {name: hourly.c[name] for name in COMPARED}).where(
            hourly.c.hour >= first, hourly.c.hour < end
        ),
        _part("days", daily.c.day, daily.c.dimension_id, {name: daily.c[name] for name in COMPARED}).where(
            daily.c.day == number
        ),
    )


def _part(name: str, at: Any, dimension_id: Any, figures: Mapping[str, Any]) -> Select[Any]:
    return select(
        literal_column(f"'{name}'"), at, dimension_id, *(figures.get(one, literal_column("0")) for one in COMPARED)
    )


def _verified(day: date, rows: Sequence[Any], *, is_forgotten: bool) -> VerifiedDay:
    read: dict[str, dict[Key, dict[str, int]]] = {"requests": {}, "corrections": {}, "hours": {}, "days": {}}
    for where, at, dimension_id, *figures in rows:
        read[where][at, dimension_id] = dict(zip(COMPARED, map(int, figures), strict=True))
    hours = read["hours"]
    of_corrections = [name for name in OF_CORRECTIONS if not (is_forgotten and name == FIRST_PRICES)]
    mismatches = list(_compare("corrections", read["corrections"], hours, of_corrections))
    if not is_forgotten:
        unmoved = [name for name in OF_REQUESTS if name not in MOVED]
        mismatches += _compare("requests", read["requests"], hours, unmoved)
        mismatches += _compare("requests", _by_hour(read["requests"]), _by_hour(hours), sorted(MOVED))
    mismatches += _compare("hours", _by_dimension(hours), _by_dimension(read["days"]), COMPARED)
    of_day = _total(hours, COMPARED)
    return VerifiedDay(
        day,
        of_day["requests"],
        of_day["adjusted_requests"],
        sum(of_day[name] for name in PAID),
        is_forgotten,
        tuple(mismatches),
    )


def _compare(compared: str, parts: Sums, sums: Sums, figures: Sequence[str]) -> Iterator[Mismatch]:
    come_to, say = _total(parts, figures), _total(sums, figures)
    places = Counter(
        name for key in parts.keys() | sums.keys() for name in figures if _at(parts, key, name) != _at(sums, key, name)
    )
    for name in figures:
        if places[name]:
            yield Mismatch(cast("Compared", compared), name, come_to[name], say[name], places[name])


def _at(sums: Sums, key: Key, name: str) -> int:
    return sums[key][name] if key in sums else 0


def _total(sums: Sums, figures: Sequence[str]) -> dict[str, int]:
    return {name: sum(one[name] for one in sums.values()) for name in figures}


def _by_hour(sums: Sums) -> Sums:
    found: dict[Key, Counter[str]] = {}
    for (hour, _), figures in sums.items():
        found.setdefault((hour, None), Counter()).update(figures)
    return found


def _by_dimension(sums: Sums) -> Sums:
    found: dict[Key, Counter[str]] = {}
    for (_, dimension_id), figures in sums.items():
        found.setdefault((0, dimension_id), Counter()).update(figures)
    return found
