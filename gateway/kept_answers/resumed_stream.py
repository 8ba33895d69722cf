"""Sends the events of a background stream again, and those that are still to come. Knows no HTTP."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from typing import Final

from backends.formats.json_objects import decode_object, text_of
from gateway.errors import InvalidRequest, StoreDown
from gateway.kept_answers.kept_events import EVENT_SECONDS, MOST_BYTES, WRITE_SECONDS, EventsGone, Head
from gateway.kept_answers.open_responses import OpenResponses, failed_event
from gateway.request.answer_parts import responses_error

log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0
"""How often the response itself is looked at."""
PATIENCE_SECONDS: Final = 10.0
"""How long an unreachable store is asked again, and how long the stream's end may come after the response's."""
ENDED: Final = ("completed", "incomplete")
_KEPT: Final = f"{MOST_BYTES >> 20} MB of each stream are kept, for {round(EVENT_SECONDS / 60)} minutes"
NO_EVENTS: Final = (
    "stream: this response has no events that could be sent again. They are kept of responses created with "
    f"background: true and stream: true; the first {_KEPT}. Fetch it without stream."
)
NO_LONGER: Final = f"The next events of this response are not kept: the first {_KEPT}. Fetch it without stream."
DELETED: Final = "This response is no longer kept."
UNREADABLE: Final = "The next events of this response cannot be read right now. Try again."


class ResumedStream:
    """The stream of one response for one reader, who has its events up to the number `last`."""

    def __init__(
        self,
        opened: OpenResponses,
        tenant: str,
        response_id: str,
        last: int,
        *,
        is_brief: bool = False,
        look_seconds: float = LOOK_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._opened = opened
        self._tenant = tenant
        self._response_id = response_id
        self._last = last
        self._look_seconds = look_seconds
        self._patience_seconds = patience_seconds
        self._kept = opened.events(tenant, response_id, is_brief=is_brief)
        self._head = Head([], [], -1)
        self._looked_at = time.monotonic()
        self._doubt: bytes | None = None
        self._doubtful_since: float | None = None

    async def require_events(self) -> None:
        """Raises InvalidRequest if there are none, and StoreDown."""
        if await self._kept.head() is None:
            raise InvalidRequest(NO_EVENTS, param="stream")

    async def events(self) -> AsyncGenerator[bytes]:
        """To the end of the stream."""
        while True:
            try:
                async for event in self._new():
                    yield event
                end = await self._end()
            except EventsGone:
                end = self._error(NO_LONGER)
            except StoreDown as error:
                log.warning("the events of a background stream cannot be read: %s", error)
                end = self._after_doubting(self._error(UNREADABLE))
            if end is not None:
                yield end
                return
            await asyncio.sleep(WRITE_SECONDS)

    async def _new(self) -> AsyncGenerator[bytes]:
        head = await self._kept.head()
        if head is None:
            raise EventsGone
        self._head = head
        async for number, event in self._kept.after(self._last, head):
            yield event
            self._last = number

    async def _end(self) -> bytes | None:
        """None if events may still come; empty if the last one ended the stream."""
        if self._head.is_ended:
            return b""
        if self._head.is_cut:
            return self._error(NO_LONGER)
        if time.monotonic() - self._looked_at >= self._look_seconds:
            self._looked_at = time.monotonic()
            self._doubt = await self._ending()
        return self._after_doubting(self._doubt)

    def _after_doubting(self, doubt: bytes | None) -> bytes | None:
        """The end, once there has been reason to doubt for long enough that more events come."""
        if doubt is None:
            self._doubtful_since = None
            return None
        if self._doubtful_since is None:
            self._doubtful_since = time.monotonic()
        return doubt if time.monotonic() - self._doubtful_since >= self._patience_seconds else None

    async def _ending(self) -> bytes | None:
        """What to say if the stream's own end does not come. None while the response is written."""
        document = await self._opened.find(self._tenant, self._response_id)
        if document is None:
            return self._error(DELETED)
        status = text_of(decode_object(document) or {}, "status")
        if status == "in_progress":
            return None
        return self._error(NO_LONGER) if status in ENDED else failed_event(document, number=self._last + 1)

    def _error(self, message: str) -> bytes:
        """With the last event's number: whoever asks again after it misses nothing."""
        told: dict[str, str | None] = {
            "message": message,
            "type": "server_error",
            "param": "stream",
            "code": "events_not_kept",
        }
        return responses_error(told, number=max(self._last, 0))
