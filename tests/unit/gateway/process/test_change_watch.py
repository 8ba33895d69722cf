import asyncio
from collections.abc import Callable

import pytest

from gateway.errors import DatabaseDown
from gateway.process.change_watch import (
    ANSWER_SECONDS,
    CATCH_UP_SECONDS,
    REFRESH_SECONDS,
    SPACING_SECONDS,
    ChangeWatch,
)
from gateway.process.tasks import end_tasks
from tests.virtual_time import now, run


class Recorder:
    """A database whose head the test advances, notifications that it can send, and a record of what the watch did."""

    def __init__(self) -> None:
        self.head = 1
        self.now = 0.0
        self.done: list[str] = []
        self.fails = False
        self.failures = 0
        self.hangs = False
        self.heard: Callable[[], None] | None = None
        self.reads = 0
        self.may_announce = asyncio.Event()
        self.may_announce.set()
        self.watch = ChangeWatch(
            self, head=self.read, refresh=self.refresh, follow_file=self.follow, monotonic=lambda: self.now
        )

    async def read(self) -> int:
        self.reads += 1
        if self.fails:
            self.failures += 1
            raise DatabaseDown("cannot use the database")
        if self.hangs:
            self.hangs = False  # only this connection hangs
            await asyncio.Event().wait()
        return self.head

    async def refresh(self) -> None:
        self.done.append("refresh")

    async def follow(self) -> None:
        self.done.append("file")

    async def announce(self) -> None:
        await self.may_announce.wait()
        self.done.append("announce")

    async def listen(self, heard: Callable[[], None]) -> None:
        self.heard = heard
        await asyncio.Event().wait()


async def test_only_a_change_is_taken_over_and_told() -> None:
    seen = Recorder()
    telling = asyncio.create_task(seen.watch.tell())
    for seen.head in (1, 1, 2, 2):
        await seen.watch.look()
        await asyncio.sleep(0)
    assert seen.done == ["refresh", "file", "refresh", "announce", "file"]
    await end_tasks([telling])


async def test_a_store_that_hangs_holds_up_no_look() -> None:
    """A key that is revoked meanwhile is refused, and one that is created is known."""
    seen = Recorder()
    seen.may_announce.clear()
    telling = asyncio.create_task(seen.watch.tell())
    for seen.head in (1, 2, 3):
        await seen.watch.look()
        await asyncio.sleep(0)
    assert seen.done == ["refresh"] * 3
    seen.may_announce.set()
    while seen.done.count("announce") < 2:
        await asyncio.sleep(0)
    await end_tasks([telling])


async def test_everything_is_read_again_now_and_then() -> None:
    seen = Recorder()
    await seen.watch.look()
    seen.now = REFRESH_SECONDS
    await seen.watch.look()
    assert seen.done == ["refresh", "refresh"]


async def test_what_one_was_told_is_not_told_again() -> None:
    seen = Recorder()
    running = [asyncio.create_task(one) for one in (seen.watch.run(), seen.watch.listen())]
    async with asyncio.timeout(300):
        seen.watch.wake()
        while "refresh" not in seen.done or seen.heard is None:
            await asyncio.sleep(0.005)
        seen.done.clear()
        seen.head = 2
        seen.heard()
        while "refresh" not in seen.done:
            await asyncio.sleep(0.005)
    assert "announce" not in seen.done
    await end_tasks(running)


async def test_a_database_that_is_down_ends_nothing_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    seen = Recorder()
    seen.fails = True
    running = asyncio.create_task(seen.watch.run())
    async with asyncio.timeout(300):
        while seen.failures < 2:
            seen.watch.wake()
            await asyncio.sleep(0.005)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        assert "the last known ones stay in force: cannot use the database" in caplog.text
        assert "Traceback" not in caplog.text
        seen.fails = False
        while len(caplog.records) < 2:
            await asyncio.sleep(0.005)
    assert "refresh" in seen.done
    assert "read from the database again" in caplog.records[1].message
    await end_tasks([running])


def test_a_connection_on_which_nothing_is_heard_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> list[str]:
        seen = Recorder()
        seen.hangs = True
        running = asyncio.create_task(seen.watch.run())
        await asyncio.sleep(ANSWER_SECONDS + 2)
        await end_tasks([running])
        return seen.done

    assert run(scene)[0] == "refresh"
    assert "the database did not answer within 30 s" in caplog.text


def test_all_who_want_to_be_caught_up_at_once_share_a_look_and_strangers_cause_few() -> None:
    async def scene() -> tuple[int, float]:
        seen = Recorder()
        seen.watch = ChangeWatch(seen, head=seen.read, refresh=seen.refresh, follow_file=seen.follow, monotonic=now)
        await asyncio.gather(*(seen.watch.catch_up() for _ in range(1000)))
        assert (seen.reads, now()) == (1, 0.0), "the first of a quiet time waits for nothing"
        for _ in range(10):
            await asyncio.gather(*(seen.watch.catch_up() for _ in range(1000)))
        return seen.reads, now()

    reads, seconds = run(scene)
    assert reads == 11
    assert seconds == pytest.approx(10 * SPACING_SECONDS)


async def test_a_look_that_began_before_is_not_enough() -> None:
    """What it read may be older than the key that is being looked up."""
    seen, may_answer = Recorder(), asyncio.Event()

    async def head() -> int:
        known = seen.head
        await may_answer.wait()
        return known

    seen.watch = ChangeWatch(
        seen, head=head, refresh=seen.refresh, follow_file=seen.follow, monotonic=lambda: 0.0, sleep=_at_once
    )
    first = asyncio.create_task(seen.watch.look())
    second = asyncio.create_task(seen.watch.catch_up())
    for _ in range(10):
        await asyncio.sleep(0)
    seen.head = 2
    third = asyncio.create_task(seen.watch.catch_up())
    may_answer.set()
    await asyncio.gather(first, second, third)
    assert seen.done.count("refresh") == 2


async def _at_once(seconds: float) -> None:
    del seconds
    await asyncio.sleep(0)


async def test_whoever_leaves_takes_the_look_from_nobody() -> None:
    seen = Recorder()
    one, other = (asyncio.create_task(seen.watch.catch_up()) for _ in range(2))
    await asyncio.sleep(0)
    one.cancel()
    await other
    assert seen.done == ["refresh"]


def test_a_database_that_is_away_or_silent_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> float:
        seen = Recorder()
        seen.fails = True
        assert not await seen.watch.catch_up()
        seen.fails, seen.hangs = False, True
        seen.now = 10.0
        assert not await seen.watch.catch_up()
        seen.now = 20.0
        assert await seen.watch.catch_up(), "it answers again"
        return now()

    assert run(scene) <= CATCH_UP_SECONDS + SPACING_SECONDS
    assert not caplog.records, "the look in turn tells of it, once"
