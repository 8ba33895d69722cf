import asyncio
import os
import time

from gateway.process.heartbeat import Patience, Pulse, beat

LOOKS = Patience(looks=3, look_seconds=0.001)


async def test_it_stops_when_so_many_looks_in_a_row_find_no_beat() -> None:
    pulse = Pulse(LOOKS)
    stopped = asyncio.create_task(pulse.stops())
    await asyncio.sleep(0.05)
    assert not stopped.done(), "a child that has not begun is still starting"
    beating = asyncio.create_task(beat(pulse.descriptor))
    await asyncio.wait_for(stopped, 300)  # beats come a second apart here
    beating.cancel()
    pulse.left_to_child()
    pulse.close()


async def test_a_parent_that_stood_still_too_gives_nobody_up() -> None:
    """However long it was frozen: what counts is how often it looked."""
    pulse = Pulse(Patience(looks=3, look_seconds=0.01))
    looked = asyncio.create_task(pulse.stops())
    for _ in range(4):  # with a beat between two looks, each five times as late as it should be
        os.write(pulse.descriptor, b".")
        time.sleep(0.05)  # noqa: ASYNC251 - it is the loop that stands still
        await asyncio.sleep(0.011)
    assert not looked.done()
    looked.cancel()
    pulse.left_to_child()
    pulse.close()


async def test_beating_waits_for_nobody_who_looks() -> None:
    """Beats go on with a full pipe, and with one whose other end is closed."""
    pulse = Pulse(LOOKS)
    os.set_blocking(pulse.descriptor, False)
    try:
        while True:
            os.write(pulse.descriptor, b"." * 4096)
    except BlockingIOError:
        pass
    beating = asyncio.create_task(beat(pulse.descriptor))
    await asyncio.sleep(0)
    pulse.close()
    again = asyncio.create_task(beat(pulse.descriptor))
    await asyncio.sleep(0)
    assert not beating.done()
    assert not again.done()
    beating.cancel()
    again.cancel()
    pulse.left_to_child()
