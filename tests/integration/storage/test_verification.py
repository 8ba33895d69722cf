"""Verification finds sums that differ from their parts, on both databases, and nothing else."""

import random
from typing import Any

import pytest
from sqlalchemy import Delete, Update, delete, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import DAY_US
from gateway.storage.database import writing
from gateway.storage.retention import apply_retention
from gateway.storage.sql.adjustments import SqlAdjustments
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sums.verification import VerifiedDay, verify_sums
from gateway.storage.tables.books import adjustments, daily, end_user_days, entries, hourly
from gateway.stores import Adjustment
from tests.integration.storage.booked import random_entry
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
START_US = make_intent(0).accepted_at_us
END_US = START_US + 50 * DAY_US
REQUESTS = 120
SUMMED_ALONE = ("gpu_us", "estimated_requests", "priced_later_requests", "upper_pico_usd")


async def verified(engine: AsyncEngine, since_us: int = 0, until_us: int = END_US) -> list[VerifiedDay]:
    return [one async for one in verify_sums(engine, since_us, until_us, now_us=lambda: START_US + 10 * DAY_US)]


async def booked(engine: AsyncEngine) -> int:
    """Requests over forty days, some without a price and some with attempts on other bills; returns their cost
    including four corrections."""
    chance = random.Random(5)
    found = [random_entry(chance, number) for number in range(REQUESTS)]
    await SqlLedger(engine).insert(found)
    priced = [one for one in found if one.cost is not None][:2]
    batch = [Adjustment(one.intent.request_id, "refund", "june", -7, "broken") for one in priced]
    unpriced = [one for one in found if one.cost is None][:2]
    batch += [Adjustment(one.intent.request_id, "reprice", "july", 7, "known") for one in unpriced]
    assert await SqlAdjustments(engine, now_us=lambda: END_US).book(batch, author="test") == 4
    return sum(one.cost.total_pico_usd for one in found if one.cost is not None)


async def test_books_that_add_up_say_what_they_come_to(engine: AsyncEngine) -> None:
    total = await booked(engine)
    days = await verified(engine)
    assert [one for one in days if one.mismatches] == []
    assert sum(one.requests for one in days) == REQUESTS
    assert sum(one.corrections for one in days) == 4
    assert sum(one.cost_pico_usd for one in days) == total
    assert [one.day for one in days] == sorted({one.day for one in days})
    tenth = days[0].day.toordinal() + 10
    later = await verified(engine, since_us=START_US + 10 * DAY_US, until_us=START_US + 12 * DAY_US)
    assert later == [one for one in days if tenth <= one.day.toordinal() < tenth + 2]


async def test_of_an_empty_ledger_there_is_no_day(engine: AsyncEngine) -> None:
    assert await verified(engine) == []


def _some_entry() -> Delete:
    return delete(entries).where(entries.c.request_id == select(entries.c.request_id).limit(1).scalar_subquery())


DAMAGE: dict[str, tuple[Update | Delete, set[tuple[str, str]]]] = {
    "a request is gone": (_some_entry(), {("requests", "requests"), ("requests", "input_tokens")}),
    "tokens of requests": (
        update(entries).values(output_tokens=entries.c.output_tokens + 1),
        {("requests", "output_tokens")},
    ),
    "money of requests": (
        update(entries).where(entries.c.list_pico_usd.is_not(None)).values(other_pico_usd=entries.c.other_pico_usd + 1),
        {("requests", "other_pico_usd")},
    ),
    "a price that is lost": (
        update(entries).values(list_pico_usd=None),
        {("requests", "unpriced_requests")},
    ),
    "hours": (
        update(hourly).values({name: hourly.c[name] + 1 for name in SUMMED_ALONE}),
        {
            ("requests", "gpu_us"),
            ("requests", "estimated_requests"),
            ("corrections", "priced_later_requests"),
            *(("hours", name) for name in SUMMED_ALONE),
        },
    ),
    "days": (update(daily).values(input_pico_usd=daily.c.input_pico_usd + 1), {("hours", "input_pico_usd")}),
    "a correction": (
        update(adjustments).values(amount_pico_usd=adjustments.c.amount_pico_usd + 1),
        {("corrections", "adjustment_pico_usd")},
    ),
    "all corrections are gone": (
        delete(adjustments),
        {("corrections", "adjustment_pico_usd"), ("corrections", "adjusted_requests")},
    ),
    "end users": (
        update(end_user_days).values(end_user=end_user_days.c.end_user + "!"),
        {("end users", "counted_pico_usd")},
    ),
    "all hours are gone": (delete(hourly), {("hours", "requests"), ("requests", "requests")}),
}


@pytest.mark.parametrize("what", DAMAGE)
async def test_what_does_not_add_up_is_found(engine: AsyncEngine, what: str) -> None:
    await booked(engine)
    statement, expected = DAMAGE[what]
    async with writing(engine) as connection:
        await connection.execute(statement)
    found = {(one.compared, one.figure) for day in await verified(engine) for one in day.mismatches}
    assert expected <= found


async def test_what_stands_in_another_dimension_is_found_though_the_day_comes_to_the_same(engine: AsyncEngine) -> None:
    at = make_intent(0).accepted_at_us
    pair = [
        make_entry(n, intent=make_intent(n, team=team, accepted_at_us=at)) for n, team in enumerate(("red", "blue"))
    ]
    await SqlLedger(engine).insert(pair)
    async with writing(engine) as connection:
        one, other = (await connection.scalars(select(hourly.c.dimension_id).order_by(hourly.c.dimension_id))).all()
        for dimension, change in ((one, 1), (other, -1)):
            for table in (hourly, daily):
                moved: dict[str, Any] = {"input_tokens": table.c.input_tokens + change}
                await connection.execute(update(table).where(table.c.dimension_id == dimension).values(moved))
    [day] = await verified(engine)
    [mismatch] = day.mismatches
    assert (mismatch.compared, mismatch.figure, mismatch.places) == ("requests", "input_tokens", 2)
    assert mismatch.come_to == mismatch.sums_say


async def test_retention_that_begins_meanwhile_is_no_damage(engine: AsyncEngine) -> None:
    """It runs every hour, and verifying years takes minutes: that used to be reported as a changed database."""
    await booked(engine)
    found: list[VerifiedDay] = []
    async for day in verify_sums(engine, 0, END_US):
        if not found:
            await apply_retention(engine, requests_days=1, bodies_days=1, now_us=END_US)
        found.append(day)
    assert [one for one in found if one.mismatches] == []
    assert sum(one.requests for one in found) == REQUESTS
    assert any(one.is_forgotten for one in found)


async def test_months_that_retention_forgot_stand_on_their_sums_alone(engine: AsyncEngine) -> None:
    await booked(engine)
    await apply_retention(engine, requests_days=10, bodies_days=10, now_us=START_US + 45 * DAY_US)
    days = await verified(engine)
    assert {(f"{one.day:%m}", one.is_forgotten) for one in days} == {("01", True), ("02", False)}
    assert [one for one in days if one.mismatches] == []
    async with writing(engine) as connection:
        await connection.execute(delete(entries))
    lost = [one for one in await verified(engine) if one.mismatches]
    assert {f"{one.day:%m}" for one in lost} == {"02"}
