"""Notices a sync that does not end: it tells of no error, and how long it took only once it is over."""

import asyncio
import logging
from typing import Final

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 2.5
LOOKS: Final = 2
"""A process that was paused finds one unfinished at its next look, but not at the one after."""


class SyncWatch:
    """`began` and `ended` are called on the event loop, in turns. Between looks it costs nothing."""

    def __init__(self, *, look_seconds: float = LOOK_SECONDS) -> None:
        self._look_seconds = look_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._is_under_way = False
        self._ended = 0
        self._seen_ended = 0
        self._looks = 0

    @property
    def is_silent(self) -> bool:
        """Whether the disk has left a sync unanswered for at least LOOKS looks."""
        return self._looks >= LOOKS

    def began(self) -> None:
        self._is_under_way = True
        if self._timer is None:
            self._look_later()

    def ended(self) -> None:
        self._is_under_way = False
        self._ended += 1
        if self.is_silent:
            log.warning("the journal's disk answers again")
        self._looks = 0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._seen_ended = self._ended
        self._timer = asyncio.get_running_loop().call_later(self._look_seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._is_under_way:
            return
        if self._ended == self._seen_ended:
            self._looks += 1
            if self._looks == LOOKS:
                log.error(
                    "the journal's disk has not answered for %.0f s: the ends of answers wait for it, and new requests "
                    "are refused until it does; see what holds it up",
                    LOOKS * self._look_seconds,
                )
        self._look_later()
