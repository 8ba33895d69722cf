import asyncio
import os
import signal

import pytest

from gateway.process.stop_signals import stop_at_hangup


@pytest.mark.parametrize("is_ignored", [False, True])
async def test_a_hangup_stops_unless_somebody_asked_that_it_be_ignored(is_ignored: bool) -> None:
    """As `nohup` does."""
    loop, told, after = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    loop.add_signal_handler(signal.SIGUSR1, after.set)
    try:
        stop_at_hangup(loop, told.set)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(300):
            await after.wait()
            if not is_ignored:
                await told.wait()
        assert told.is_set() is not is_ignored
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        loop.remove_signal_handler(signal.SIGUSR1)
        signal.signal(signal.SIGHUP, before)
