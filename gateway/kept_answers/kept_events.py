"""The events of a background stream, kept in pages so that any worker can send them again. Knows no HTTP.

One writer adds events to the head, and moves them to a page of their own whenever there are many.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from gateway.errors import StoreDown
from gateway.kept_answers.kept_turns import TRIES, KeptTurns
from gateway.process.tasks import to_its_end

log = logging.getLogger(__name__)
EVENT_SECONDS: Final = 3600.0
"""How long events are kept after they were written or read."""
MOST_BYTES: Final = 32 << 20
"""Of one stream; later events are sent but not kept."""
PAGE_BYTES: Final = 1 << 15
WRITE_SECONDS: Final = 0.25
"""How often new events are written: readers are that much behind."""


Event = tuple[int, bytes]
"""Its number, and its bytes as they are sent."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """The number of each page's first event, the events that are on no page yet, the number of the last event (-1: none
    yet), and whether nothing follows it: because the stream `is_ended`, or because it `is_cut` at MOST_BYTES."""

    firsts: list[int]
    newest: list[Event]
    last: int
    is_ended: bool = False
    is_cut: bool = False


_PAGE: Final = msgspec.msgpack.Decoder(list[Event])
_HEAD: Final = msgspec.msgpack.Decoder(Head)


class KeptEvents:
    """Those of one response, as they are read. Everything may raise StoreDown."""

    def __init__(self, kept: KeptTurns, tenant: str, response_id: str, seconds: float = EVENT_SECONDS) -> None:
        self._seconds = seconds
        self._kept = kept
        self._tenant = tenant
        self._response_id = response_id

    async def head(self) -> Head | None:
        """None if the response was never streamed, or its events are no longer kept."""
        plain = await self._kept.find_sealed(self._tenant, self._name(), self._seconds)
        return None if plain is None else _HEAD.decode(plain)

    async def after(self, number: int, head: Head) -> AsyncGenerator[Event]:
        """The events from `number` + 1 on that `head` knows of. Raises EventsGone."""
        if head.last <= number:
            return
        if not head.newest or number + 1 < head.newest[0][0]:
            for place in range(max(0, bisect_right(head.firsts, number + 1) - 1), len(head.firsts)):
                plain = await self._kept.find_sealed(self._tenant, self._name(place), self._seconds)
                if plain is None:
                    raise EventsGone
                for event in _PAGE.decode(plain):
                    if event[0] > number:
                        yield event
        for event in head.newest:
            if event[0] > number:
                yield event

    async def forget(self) -> None:
        head = await self.head()
        if head is not None:
            for place in range(len(head.firsts)):
                await self._kept.forget(self._tenant, self._name(place))
            await self._kept.forget(self._tenant, self._name())

    async def put(self, value: Head | list[Event], place: int | None = None) -> None:
        """The head, or the page of that place."""
        plain = msgspec.msgpack.encode(value)
        await self._kept.put_sealed(self._tenant, self._name(place), plain, self._seconds)

    @property
    def again_seconds(self) -> float:
        return self._kept.again_seconds

    def _name(self, place: int | None = None) -> str:
        return f"{self._response_id}\0events" + ("" if place is None else f" {place}")


class EventsGone(Exception):
    """Some of the events are no longer kept."""


class EventWriter:
    """Keeps the events of a stream while it is written."""

    def __init__(self, events: KeptEvents, *, most_bytes: int = MOST_BYTES) -> None:
        self._events = events
        self._left_bytes = most_bytes
        self._firsts: list[int] = []
        self._page: list[Event] = []
        self._page_bytes = 0
        self._last = -1
        self._is_cut = self._is_ended = False
        self._news = asyncio.Event()

    def add(self, number: int, event: bytes, *, is_end: bool = False) -> None:
        self._left_bytes -= len(event)
        self._is_cut = self._is_cut or self._left_bytes < 0
        if not self._is_cut:
            self._page.append((number, event))
            self._page_bytes += len(event)
            self._last = number
            self._is_ended = is_end
        self._news.set()

    async def keep(self) -> None:
        """Writes what is new until it is cancelled."""
        while True:
            await self._news.wait()
            await to_its_end(self.write())
            await asyncio.sleep(WRITE_SECONDS)

    async def finish(self) -> None:
        """Writes what is new, and tries for some seconds."""
        await self.write()
        for _ in range(TRIES - 1):
            if not self._news.is_set():
                return
            await asyncio.sleep(self._events.again_seconds)
            await self.write()

    async def write(self) -> None:
        """Writes what is new. What cannot be written now is written next time."""
        if not self._news.is_set():
            return
        self._news.clear()
        page, page_bytes, place = self._page.copy(), self._page_bytes, len(self._firsts)
        is_full = page_bytes >= PAGE_BYTES
        firsts, newest = ([*self._firsts, page[0][0]], []) if is_full else (self._firsts, page)
        head = Head(firsts, newest, self._last, is_ended=self._is_ended, is_cut=self._is_cut)
        try:
            if is_full:
                await self._events.put(page, place)
            await self._events.put(head)
        except StoreDown as error:
            log.warning("the events of a background stream cannot be kept right now: %s", error)
            self._news.set()
            return
        if is_full:
            self._firsts = firsts
            self._page_bytes -= page_bytes
            del self._page[: len(page)]
