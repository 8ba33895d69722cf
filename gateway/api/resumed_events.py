"""Sends the events of a background stream to a caller who fetches them. Knows no store."""

from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope, Send

from backends.protocol import EVENT_STREAM
from gateway.api.asgi_caller import AsgiCaller, while_connected
from gateway.errors import RateLimitExceeded

MOST_READERS: Final = 100
"""Of one tenant in one worker: each asks the store several times a second."""
_OK: Final = 200


class Readers:
    """How many streams each tenant is fetching from this worker."""

    def __init__(self, *, most: int = MOST_READERS) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def require_place(self, tenant: str) -> None:
        """Raises RateLimitExceeded."""
        if self._open[tenant] >= self._most:
            raise RateLimitExceeded(
                f"stream: this key's team is fetching {self._most} streams already. Wait until one has ended.",
                retry_after_seconds=1.0,
            )

    @contextmanager
    def place(self, tenant: str) -> Generator[None]:
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]


class ResumedEvents(Response):
    """Until the stream ends or its caller leaves."""

    def __init__(self, events: AsyncGenerator[bytes], readers: Readers, tenant: str) -> None:
        super().__init__(media_type=EVENT_STREAM)
        self._events = events
        self._readers = readers
        self._tenant = tenant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = AsgiCaller(send)
        try:
            with self._readers.place(self._tenant):
                await while_connected(self._send_to(caller), caller, scope, receive)
        finally:
            caller.close()

    async def _send_to(self, caller: AsgiCaller) -> None:
        await caller.start(status=_OK, content_type=EVENT_STREAM, headers={})
        await caller.send(caller.heartbeat)  # the next event may come late, and a caller waits for the head
        async for event in self._events:
            await caller.send(event)
        await caller.send(b"", is_last=True)
