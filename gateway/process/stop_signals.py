"""Which signals mean that this process is to stop in order. Knows nothing of what stops."""

import asyncio
import signal
from collections.abc import Callable

TOLD_TO_STOP = (signal.SIGINT, signal.SIGTERM)


def stop_at_hangup(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> None:
    """The terminal that we were started from is gone; that is said more than once, and is no order to hurry.

    Not where somebody asked that it be ignored (nohup). Until the loop is closed.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, stop)
