"""Tells systemd that this process is ready, alive or stopping, if asked to (`Type=notify`, `WatchdogSec=`).

Knows nothing of what is served.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Literal

State = Literal["READY=1", "STOPPING=1", "WATCHDOG=1"]
BEATS = 3
"""Per watchdog timeout."""


def tell(state: State, environ: Mapping[str, str] = os.environ) -> None:
    """Never blocks, and ignores a socket that is gone."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), address)


async def keep_watchdog(environ: Mapping[str, str] = os.environ) -> None:
    """As long as the event loop turns; returns at once if this process is not watched."""
    told, watched = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(os.getpid()))
    if not told.isdecimal() or not int(told) or watched != str(os.getpid()):
        return
    while True:
        tell("WATCHDOG=1", environ)
        await asyncio.sleep(int(told) / 1_000_000 / BEATS)
