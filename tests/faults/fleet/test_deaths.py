"""Processes of two replicas with two workers each die: nothing is lost with them, and they leave no place occupied."""

import asyncio
import random
import time

import aiohttp
import pytest

from gateway.api.under_way import TOLD_SECONDS
from tests.faults.fleet.caller import Load, chat, until_known
from tests.faults.fleet.two_replicas import ENTRIES, Fleet
from tests.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def test_who_asks_again_after_an_answer_finds_a_place_and_a_killed_worker_keeps_none(fleet: Fleet) -> None:
    _, key = fleet.new_key("as-many-callers", max_parallel_requests=8)
    await until_known(fleet.urls, key)
    load = Load(fleet.urls, key, callers=8)
    running = asyncio.create_task(load.run())
    deadline, refused = time.monotonic() + PATIENCE_SECONDS, -1
    while len(load.refused) > refused:
        assert time.monotonic() < deadline, "somebody was refused again and again"
        refused = len(load.refused)
        await _until_answered(load, 200)
        # An answer's end waits for Redis, but at most TOLD_SECONDS: after a timeout the answer took as long.
        is_excused = load.longest_seconds > 0.9 * TOLD_SECONDS
        assert is_excused or not load.refused, "somebody's place was free only after they had heard their answer"
    for victim in fleet.one.worker_processes():
        victim.kill()
    await _until_answered(load, 100)
    load.stop()
    await running
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        while True:
            answers = await asyncio.gather(*(chat(session, fleet.two.url, key, stream=True) for _ in range(8)))
            if {got.status for got in answers} == {200}:
                break
            assert time.monotonic() < deadline, "places are held by the dead"
            await asyncio.sleep(1.0)
    await until_known(fleet.urls, key)  # new workers too: until one listens, the tests that follow would find none


async def test_a_killed_worker_is_replaced_while_the_others_serve(fleet: Fleet) -> None:
    _, key = fleet.new_key("one-worker-dies")
    await until_known(fleet.urls, key)
    load = Load(fleet.urls, key)
    running = asyncio.create_task(load.run())
    await _until_answered(load, 50)
    victim = random.choice(fleet.one.worker_processes())
    victim.kill()
    await _until_answered(load, 50)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(alive := fleet.one.worker_processes()) < 2 or victim in alive:
        assert time.monotonic() < deadline, "no new worker"
        await asyncio.sleep(0.1)
    await _until_answered(load, 50)
    load.stop()
    await running
    assert not load.refused
    await fleet.all_are_booked_once(load.answered)


async def test_a_replica_killed_under_load_loses_no_settled_entry(fleet: Fleet) -> None:
    key_id, key = fleet.new_key("replica-dies")
    await until_known(fleet.urls, key)
    load = Load(fleet.urls, key, callers=32)
    running = asyncio.create_task(load.run())
    await _until_answered(load, 200)
    fleet.two.kill()
    await _until_answered(load, 100)
    load.stop()
    await running
    assert load.broken, "nothing was under way when it died"
    fleet.two.start()
    fleet.two.wait_until_ready()
    await fleet.all_are_booked_once(load.answered)
    [row] = await fleet.rows(f"select count(*) as whole {ENTRIES} where d.key_id = $1 and status = 'completed'", key_id)
    assert row["whole"] >= len(load.answered)
    totals = [fleet.admin("GET", "/reports/costs?by=key", at=replica)["total"] for replica in (fleet.one, fleet.two)]
    assert totals[0] == totals[1], "whoever is asked tells the same"


async def _until_answered(load: Load, more: int) -> None:
    wanted = len(load.answered) + more
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(load.answered) < wanted:
        assert time.monotonic() < deadline, f"{len(load.answered)} of {wanted} answered, {load.broken} broken"
        await asyncio.sleep(0.02)
