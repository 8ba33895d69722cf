"""GPU rents as recorded at a start, on both databases."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.economics.rent import GpuRent
from gateway.instants import HOUR_US
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.rents import SqlRents
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration

FIRST = GpuRent("local", "local", 0, 2 * 10**12)


async def test_only_what_changed_is_added(engine: AsyncEngine) -> None:
    rents = SqlRents(engine)
    assert await rents.rents() == []
    await rents.keep([FIRST], 400_000)
    await rents.keep([FIRST], 400_100)
    assert await rents.rents() == [FIRST]
    await rents.keep([replace(FIRST, hour_pico_usd=None)], 400_200)
    assert await rents.rents() == [FIRST, replace(FIRST, from_hour=400_200, hour_pico_usd=None)]


async def test_an_hour_has_the_last_price_that_began_in_it(engine: AsyncEngine) -> None:
    rents = SqlRents(engine)
    await rents.keep([FIRST], 400_000)
    for cents in (3, 4):
        await rents.keep([replace(FIRST, hour_pico_usd=cents)], 400_100)
    assert await rents.rents() == [FIRST, replace(FIRST, from_hour=400_100, hour_pico_usd=4)]


async def test_workers_that_start_together_record_it_once(engine: AsyncEngine) -> None:
    await asyncio.gather(*(SqlRents(engine).keep([FIRST], 400_000) for _ in range(8)))
    assert await SqlRents(engine).rents() == [FIRST]


DEAR = replace(FIRST, hour_pico_usd=5 * 10**12)


async def book(engine: AsyncEngine, *hours: int) -> None:
    intents = [make_intent(hour, accepted_at_us=hour * HOUR_US) for hour in hours]
    await SqlLedger(engine).insert([make_entry(one, intent=intent) for one, intent in zip(hours, intents, strict=True)])


async def test_a_price_dated_by_a_clock_that_was_ahead_begins_when_it_is_right(engine: AsyncEngine) -> None:
    rents = SqlRents(engine)
    await book(engine, 400_000)
    await rents.keep([FIRST], 400_000)
    await rents.keep([DEAR], 409_000)  # a year ahead, with some requests in between
    await book(engine, 409_000, 409_001)
    await rents.keep([DEAR], 400_100)
    assert await rents.rents() == [FIRST, replace(DEAR, from_hour=400_100)]
    await rents.keep([FIRST], 400_200)
    assert [one.from_hour for one in await rents.rents()] == [0, 400_100, 400_200]


async def test_a_clock_that_is_behind_changes_no_hour_that_was_paid_for(engine: AsyncEngine) -> None:
    rents = SqlRents(engine)
    await rents.keep([FIRST], 400_000)
    await rents.keep([DEAR], 400_100)
    known = await rents.rents()
    await book(engine, 400_050, 400_150)
    for price in (FIRST, DEAR, replace(DEAR, hour_pico_usd=7)):
        await rents.keep([price], 400_000)
    assert await rents.rents() == known
