"""A sync that does not end is noticed; many that end, or a pause of the process, are not taken for one."""

import asyncio
import time

import pytest

from gateway.ledger.sync_watch import LOOK_SECONDS, LOOKS, SyncWatch
from tests.virtual_time import run

SILENCE = LOOKS * LOOK_SECONDS


def test_only_a_sync_that_lasts_is_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def watch_syncs() -> None:
        watch = SyncWatch()
        for seconds in (0.001, 0.9 * LOOK_SECONDS, 0.001) * 20:
            watch.began()
            await asyncio.sleep(seconds)
            assert not watch.is_silent
            watch.ended()
        await asyncio.sleep(3 * SILENCE)  # without any
        watch.began()
        await asyncio.sleep(0.9 * SILENCE)
        assert not watch.is_silent
        await asyncio.sleep(SILENCE)
        assert watch.is_silent
        watch.ended()
        assert not watch.is_silent
        watch.close()

    run(watch_syncs)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


async def test_a_process_that_was_paused_hears_of_an_end_before_it_takes_it_for_silence() -> None:
    watch = SyncWatch(look_seconds=0.001)
    watch.began()
    _pause(0.005)
    for _ in range(2):
        await asyncio.sleep(0)  # one look, which came due in the pause
    assert not watch.is_silent
    watch.ended()
    watch.close()


def _pause(seconds: float) -> None:
    time.sleep(seconds)
