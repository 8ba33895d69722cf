"""Which workers know a warm prefix: all, those of one replica, or only one while the channel is down."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from gateway.errors import StoreDown
from gateway.upstreams.shared_prefixes import MOST_UNTOLD, Heard, SharedWarmPrefixes, WarmNote
from tests.waiting import until

PATIENCE_SECONDS = 60.0
PROMPT = (b"fingerprint of a prompt", 3000)


@dataclass(slots=True)
class Wire:
    """A worker's PrefixChannel that records what it sends, and delivers what a test says."""

    is_down: bool = False
    told: list[tuple[Sequence[WarmNote], bool]] = field(default_factory=list[tuple[Sequence[WarmNote], bool]])
    heard: asyncio.Future[Heard] = field(default_factory=asyncio.Future[Heard])

    async def tell(self, notes: Sequence[WarmNote], *, only_replica: bool) -> None:
        if self.is_down:
            raise StoreDown("nobody is there")
        self.told.append((notes, only_replica))

    async def listen(self, heard: Heard) -> None:
        self.heard.set_result(heard)
        await asyncio.Event().wait()

    async def aclose(self) -> None: ...


def worker(wire: Wire, now: float = 100.0) -> SharedWarmPrefixes:
    return SharedWarmPrefixes(wire, monotonic=lambda: now)


async def test_what_is_noted_is_known_here_at_once_and_told_once() -> None:
    warm = worker(wire := Wire())
    for _ in range(3):
        warm.note("team red", PROMPT, "m", 2944, 400.0)
    assert warm.lookup("team red", [PROMPT], 100.0) == {"m": 2944}
    await warm.tell()
    await warm.tell()
    assert wire.told == [([WarmNote("team red", PROMPT[0], "m", 2944, 300.0)], False)]


async def test_a_replicas_own_engine_is_told_of_to_its_own_workers_only() -> None:
    warm = worker(wire := Wire())
    warm.note("t", PROMPT, "own", 16, 400.0, is_replicas_own=True)
    warm.note("t", PROMPT, "hosted", 2944, 400.0)
    await warm.tell()
    assert [(notes[0].model, only_replica) for notes, only_replica in wire.told] == [("hosted", False), ("own", True)]


async def test_what_others_tell_is_known_until_its_time() -> None:
    running = asyncio.create_task((warm := worker(wire := Wire())).run())
    heard = await asyncio.wait_for(wire.heard, PATIENCE_SECONDS)
    heard([WarmNote("t", PROMPT[0], "m", 2944, 300.0)], 100.0)
    assert warm.lookup("t", [PROMPT], 299.0) == {"m": 2944}
    assert warm.lookup("t", [PROMPT], 301.0) == {}
    heard([WarmNote("t", PROMPT[0], "m", 2944, 300.0)], 301.0)
    assert warm.lookup("t", [PROMPT], 299.0) == {"m": 2944}, "an old word takes nothing away"
    assert wire.told == [], "and nothing that was heard is told again"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_without_the_others_a_worker_knows_its_own_and_tells_again_when_they_are_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warm = worker(wire := Wire(is_down=True))
    running = asyncio.create_task(warm.run())
    with caplog.at_level(logging.WARNING):
        warm.note("t", PROMPT, "m", 2944, 400.0)
        await until(lambda: caplog.messages)
    assert "nobody is there" in caplog.messages[0]
    assert warm.lookup("t", [PROMPT], 100.0) == {"m": 2944}
    wire.is_down = False
    warm.note("t", PROMPT, "m", 2944, 401.0)
    await until(lambda: wire.told)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_cannot_be_told_is_bounded_and_the_oldest_goes_first() -> None:
    warm = worker(wire := Wire())
    for number in range(MOST_UNTOLD + 1):
        warm.note("t", (str(number).encode(), 1), "m", 16, 400.0)
    await warm.tell()
    [(notes, _)] = wire.told
    assert len(notes) == MOST_UNTOLD
    assert notes[0].fingerprint == b"1"
