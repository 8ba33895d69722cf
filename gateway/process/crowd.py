"""Closes the connections idle longest when there are so many that calls would run out of file descriptors. Knows no
HTTP."""

import asyncio
import logging
from typing import Final, Protocol

log = logging.getLogger(__name__)
SPARED_SECONDS: Final = 1.0
"""Grace for connections just opened or answered: a request may be on its way."""


class Guest(Protocol):
    """A connection that can be closed."""

    def leave(self) -> None:
        """Close it, once what is in progress on it has ended."""
        ...


class Crowd:
    """All connections of one server: `came`, then `busy` and `waits` alternately, then `gone`. Keeps at most `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._present = 0
        self._waiting: dict[Guest, float] = {}
        """Idle since when; longest first."""
        self._look: asyncio.TimerHandle | None = None
        self._has_told = False
        self._loop = asyncio.get_running_loop()

    def came(self, guest: Guest) -> None:
        self._present += 1
        self.waits(guest)

    def busy(self, guest: Guest) -> None:
        self._waiting.pop(guest, None)

    def waits(self, guest: Guest) -> None:
        self._waiting[guest] = self._loop.time()
        if self._present > self._most:
            self._thin_out()

    def gone(self, guest: Guest) -> None:
        self._present -= 1
        self._waiting.pop(guest, None)

    def _thin_out(self) -> None:
        """Closes connections past the grace period now, and the remaining excess later."""
        if self._look is not None:
            return
        now = self._loop.time()
        for guest in tuple(self._waiting)[: self._present - self._most]:
            if (left := self._waiting[guest] + SPARED_SECONDS - now) > 0:
                self._look = self._loop.call_later(left, self._look_again)
                return
            self._tell()
            del self._waiting[guest]
            guest.leave()

    def _look_again(self) -> None:
        self._look = None
        self._thin_out()

    def _tell(self) -> None:
        if not self._has_told:
            self._has_told = True
            log.warning(
                "more than %d connections are open, and this process needs the rest of the files that it may open for "
                "calls: from now on those that wait longest for a request are closed; raise the limit (ulimit -Hn, "
                "systemd's LimitNOFILE)", self._most,
            )  # fmt: skip
