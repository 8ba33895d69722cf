"""A report with too many groups is rejected before anything is summed, and no other is."""

import random

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.instants import HOUR_US
from gateway.storage.sql.ledger import SqlLedger
from gateway.storage.sql.reports import SqlReports
from gateway.storage.sums.group_count import refuse_too_many, refuse_too_many_end_users
from gateway.sums import Dimension, SumsQuery, TooManyGroups
from tests.unit.gateway.ledger.builders import make_entry, make_intent

pytestmark = pytest.mark.integration
DAYS_US = make_intent(0).accepted_at_us, make_intent(0).accepted_at_us + 8 * 24 * HOUR_US
EVER = (0, 2**60)
BY: tuple[tuple[Dimension, ...], ...] = (
    ("key",),
    ("tag", "month"),
    ("key", "tag"),
    ("key", "hour"),
    ("key", "day", "team"),
    ("day", "hour"),
    ("month", "day", "tag"),
)


async def fill(engine: AsyncEngine) -> None:
    chance = random.Random(3)
    intents = [
        make_intent(
            number,
            accepted_at_us=DAYS_US[0] + chance.randrange(8 * 24 * HOUR_US),
            key_id=f"key-{chance.randrange(6)}",
            tags=tuple(chance.sample("xyz", chance.randrange(3))),
            end_user=chance.choice(("ada", "bob", None)),
        )
        for number in range(60)
    ]
    await SqlLedger(engine).insert([make_entry(number, intent=intent) for number, intent in enumerate(intents)])


async def is_refused(engine: AsyncEngine, query: SumsQuery) -> bool:
    async with engine.connect() as connection:
        try:
            if "end_user" in query.by:
                await refuse_too_many_end_users(connection, [query])
            else:
                await refuse_too_many(connection, [query], EVER)
        except TooManyGroups:
            return True
    return False


async def test_what_is_too_long_is_refused_unread_and_nothing_else(engine: AsyncEngine) -> None:
    await fill(engine)
    for by in BY:
        for zone, since_us in (("UTC", DAYS_US[0]), ("Asia/Kolkata", DAYS_US[0] + HOUR_US // 2)):
            query = SumsQuery(since_us, DAYS_US[1], by, time_zone=zone)
            groups = len(await SqlReports(engine).sums(query))
            exact = SumsQuery(since_us, DAYS_US[1], by, time_zone=zone, most_groups=groups)
            assert not await is_refused(engine, exact), (by, zone)
            fewer = SumsQuery(since_us, DAYS_US[1], by, time_zone=zone, most_groups=groups - 1)
            with pytest.raises(TooManyGroups):
                await SqlReports(engine).sums(fewer)
            if zone == "UTC" and not {"tag", "month"} & set(by):
                assert await is_refused(engine, fewer), by


async def test_of_local_days_most_are_refused_unread(engine: AsyncEngine) -> None:
    await fill(engine)
    query = SumsQuery(*DAYS_US, ("key", "day"), time_zone="Asia/Kolkata", most_groups=8)
    assert await is_refused(engine, query)


async def test_too_many_end_users_are_counted_before_what_they_cost_is_read(engine: AsyncEngine) -> None:
    await fill(engine)
    asked: list[tuple[tuple[Dimension, ...], int]] = [
        (("end_user",), 2),
        (("end_user", "day"), 2),
        (("key", "end_user"), 9),
    ]
    for by, most in asked:
        query = SumsQuery(*DAYS_US, by, most_groups=most)
        assert await is_refused(engine, query) == (most == 2), by
        with pytest.raises(TooManyGroups):
            await SqlReports(engine).sums(query)
    assert not await is_refused(engine, SumsQuery(*DAYS_US, ("end_user",), most_groups=3))
    assert not await is_refused(engine, SumsQuery(*DAYS_US, ("end_user",), {"end_user": "ada"}, most_groups=1))
    assert not await is_refused(engine, SumsQuery(DAYS_US[0], DAYS_US[0], ("end_user",), most_groups=0))
