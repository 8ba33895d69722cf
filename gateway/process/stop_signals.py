"""The signals that ask this process to stop in order. Knows nothing of what stops."""

import asyncio
import signal
from collections.abc import Callable

TOLD_TO_STOP = (signal.SIGINT, signal.SIGTERM)


def stop_at_hangup(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> None:
    """Handle the loss of our terminal. It is signalled repeatedly, and is no request to hurry.

    Leaves SIGHUP ignored if it is (nohup). Stays in force until the loop is closed.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)
