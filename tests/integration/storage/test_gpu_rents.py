"""Rents as a start records them, on both databases."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.economics.rent import GpuRent
from gateway.storage.sql_rents import SqlRents

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
