"""Texts of keys that opted in: stored once the answer is complete, held while the store is down, up to a limit."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.access.keys import hash_key
from gateway.kept_answers.body_keeper import Bodies, BodyKeeper
from tests.rig import KEY, PEPPER, RecordingCaller, Rig


class MemoryBodies:
    def __init__(self) -> None:
        self.stored: list[Bodies] = []
        self.is_down = False

    async def put(self, batch: Sequence[Bodies]) -> None:
        if self.is_down:
            raise ConnectionError("down")
        self.stored += batch


def opted_in(store: MemoryBodies) -> tuple[Rig, BodyKeeper]:
    keeper = BodyKeeper(store)
    rig = Rig(bodies=keeper)
    record = rig.pipeline.keys.authenticate(KEY, 0)
    rig.pipeline.keys.replace({hash_key(PEPPER, KEY): replace(record, keeps_bodies=True)})
    return rig, keeper


@pytest.mark.parametrize("is_stream", [False, True])
async def test_what_was_asked_and_answered_is_kept_as_it_was(is_stream: bool) -> None:
    store = MemoryBodies()
    rig, keeper = opted_in(store)
    caller = await rig.ask(stream=is_stream)
    await keeper.drain(30)
    [kept] = store.stored
    assert kept.answer == caller.body
    assert b'"hello"' in kept.request
    assert (kept.request_id, kept.key_id) == (rig.entry.intent.request_id, "key-1")


async def test_a_key_that_did_not_opt_in_leaves_no_text() -> None:
    store = MemoryBodies()
    keeper = BodyKeeper(store)
    await Rig(bodies=keeper).ask()
    await keeper.drain(30)
    assert store.stored == []


async def test_an_answer_that_nobody_waited_for_is_not_kept() -> None:
    store = MemoryBodies()
    rig, keeper = opted_in(store)
    leaving = asyncio.create_task(rig.ask(RecordingCaller(leaves_after=1), stream=True))
    await asyncio.gather(leaving, return_exceptions=True)
    await keeper.drain(30)
    assert store.stored == []


async def test_a_store_that_is_down_is_waited_for_in_bounded_memory() -> None:
    store = MemoryBodies()
    store.is_down = True
    keeper = BodyKeeper(store, most_waiting_bytes=1000)
    made = [Bodies(f"{number:032x}", "key-1", b"x" * 100, b"") for number in range(30)]
    for bodies in (*made, Bodies("f" * 32, "key-1", b"x" * 2000, b"")):
        keeper.keep(bodies)
    await keeper.drain(0.05)
    assert keeper.dropped == 21  # the oldest, and the one that is larger than everything
    store.is_down = False
    running = asyncio.create_task(keeper.run())
    while len(store.stored) < 10:
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert store.stored == made[-10:]
