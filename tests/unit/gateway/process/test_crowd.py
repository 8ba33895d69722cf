import asyncio
import logging

import pytest

from gateway.process.crowd import Crowd
from tests.virtual_time import run


class Guest:
    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self.has_left = False
        crowd.came(self)

    def leave(self) -> None:
        self.has_left = True
        self._crowd.gone(self)


def test_who_waits_longest_goes_first_and_only_as_many_as_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> list[bool]:
        crowd = Crowd(2)
        guests = [Guest(crowd), Guest(crowd)]
        await asyncio.sleep(10)
        crowd.busy(guests[0])
        crowd.waits(guests[0])
        guests += [Guest(crowd)]
        await asyncio.sleep(10)
        return [guest.has_left for guest in guests]

    with caplog.at_level(logging.WARNING):
        assert run(scene) == [False, True, False]
    assert [record.message[:36] for record in caplog.records] == ["more than 2 connections are open, an"]


def test_nobody_goes_whose_request_may_be_on_its_way_or_is_being_answered() -> None:
    async def scene() -> None:
        crowd = Crowd(1)
        calling, fresh = Guest(crowd), Guest(crowd)
        crowd.busy(calling)
        await asyncio.sleep(0.9)
        assert not fresh.has_left
        await asyncio.sleep(0.2)
        assert fresh.has_left
        later = Guest(crowd)
        crowd.busy(later)
        await asyncio.sleep(10)
        assert [calling.has_left, later.has_left] == [False, False], "calls are refused elsewhere, in words"
        crowd.waits(calling)
        await asyncio.sleep(1.1)
        assert calling.has_left

    run(scene)


def test_below_the_limit_nobody_goes() -> None:
    async def scene() -> bool:
        crowd = Crowd(2)
        guests = [Guest(crowd), Guest(crowd)]
        await asyncio.sleep(3600)
        return any(guest.has_left for guest in guests)

    assert not run(scene)
