"""Four months of days that differ, without a database."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta

import numpy as np

from gateway.instants import microseconds as us
from gateway.sums import Sums, SumsQuery
from tests.unit.gateway.api.memory_stores import OneSum

USD = 10**12
NOW = datetime(2026, 11, 11, 15, tzinfo=UTC)
FIRST = date(2026, 7, 1)
NOISE = np.random.default_rng(3)
COSTS = {FIRST + timedelta(days=n): round(USD * (1 + NOISE.random())) for n in range((NOW.date() - FIRST).days + 1)}


class Months(OneSum):
    """Four months of days that differ, today included."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        begins = {day: us(datetime(day.year, day.month, day.day, tzinfo=UTC)) for day in COSTS}
        wanted = [day for day, at_us in begins.items() if query.since_us <= at_us < query.until_us]
        return [Sums({"day": day.isoformat()}, input_pico_usd=COSTS[day]) for day in wanted]

    async def first_and_last_us(self) -> tuple[int, int] | None:
        return us(datetime(2026, 7, 1, tzinfo=UTC)), us(NOW)
