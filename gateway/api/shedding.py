"""Load shedding: refuses too many requests at once, too many bytes of bodies, and bodies that arrive too slowly."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.unread_bodies import Unread, UnreadBodies
from gateway.errors import BodyTooSlow, Overloaded
from gateway.process.patient_protocol import CONNECTION

BODY_SECONDS = 60.0
"""The longest pause between two parts of a body."""
LEAST_BYTES_PER_SECOND = 500
"""The least average rate of a body after those seconds: one byte now and then would hold its place for days."""
RETRY_SECONDS = 1.0
API = "/v1/"
FILES = "/v1/files"
"""Uploads are written to disk as they arrive: only one part of each is in memory."""
UNASKED_BYTES = 1 << 16
"""Bodies up to this size are read before the sender is authenticated: they usually arrive in one piece."""
GIVEN_UP = (
    "more than half of its places are taken by requests of this key whose bodies have not arrived, and others need "
    "them. Send bodies faster, or fewer at once"
)
Bound = Callable[[Scope, int], int]
"""Given the bytes of a body received so far, the most that it may have. Raises RequestError."""
BODILESS = ("GET", "HEAD", "OPTIONS")


@dataclass(slots=True)
class Load:
    """What this process has in progress: requests from first byte to last, and the bytes of their bodies."""

    requests: int = 0
    buffered_bytes: int = 0
    shed: int = 0


class Shedding:
    """Wraps the application. Health, metrics and administration are never refused because of load: they are needed to
    find its cause. `bound` limits the size of each body, `whose` gives the id of its key; both raise RequestError.

    A request takes a place only once its body has arrived or its key is known; otherwise strangers could take all
    places and send nothing more. A key that holds places this way gives way to others.

    A refusal is raised from `receive`, so that each endpoint reports it in its own error format.
    """

    def __init__(
        self,
        app: ASGIApp,
        load: Load,
        bound: Bound,
        *,
        whose: Callable[[Scope], str],
        max_requests: int,
        max_buffered_bytes: int,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._app = app
        self.load = load
        self.bound = bound
        self.whose = whose
        self.unread = UnreadBodies(max_requests)
        self._max_requests = max_requests
        self._max_buffered_bytes = max_buffered_bytes
        self.body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS:
            await self._app(scope, receive, send)
        elif scope["method"] != "POST" or not scope["path"].startswith(API):
            await self._app(scope, _Body(self, scope, receive).receive, send)
        else:
            body = _CountedBody(self, scope, receive)
            try:
                await self._app(scope, body.receive, send)
            finally:
                body.let_go()

    def require_place(self, scope: Scope) -> None:
        """Raises Overloaded, and whatever `whose` raises."""
        if self.load.requests > self._max_requests and not self.unread.make_room_for(self.whose(scope)):
            raise self.refusal(f"{self._max_requests:,} requests are under way")

    def require_memory(self) -> None:
        """Raises Overloaded."""
        if self.load.buffered_bytes > self._max_buffered_bytes:
            raise self.refusal(f"the requests under way hold {self._max_buffered_bytes >> 20:,} MB")

    def refusal(self, why: str) -> Overloaded:
        self.load.shed += 1
        return Overloaded(
            f"This gateway accepts no more requests for now: {why}. Try again in a moment.",
            retry_after_seconds=RETRY_SECONDS,
        )


class _Body:
    """A body as it arrives: in time, and within its bound."""

    def __init__(self, shedding: Shedding, scope: Scope, receive: Receive) -> None:
        self._shedding = shedding
        self._scope = scope
        self._receive = receive
        self._is_whole = _is_whole(scope)
        self._began = 0.0 if self._is_whole else asyncio.get_running_loop().time()
        self._came = 0
        self._most = UNASKED_BYTES
        self._is_read = False
        self._unread: Unread | None = None

    async def receive(self) -> Message:
        """Raises RequestError."""
        if self._is_read:
            return await self._receive()
        message = await (self._receive() if self._is_whole else self._in_time())
        self._came += len(message.get("body", b""))
        self._is_read = not message.get("more_body", False)
        if self._came > self._most:
            self._most = self._shedding.bound(self._scope, self._came)
        return message

    async def _in_time(self) -> Message:
        if not self._came and (announced := _awaited_bytes(self._scope)) is not None:
            self._shedding.bound(self._scope, announced)  # receiving tells the client to send its body
        unread = self._unread
        if unread is not None and unread.is_given_up:
            raise self._shedding.refusal(GIVEN_UP)
        seconds = self._shedding.body_seconds
        due = min(asyncio.get_running_loop().time(), self._began + self._came / LEAST_BYTES_PER_SECOND) + seconds
        try:
            async with asyncio.timeout_at(due) as timeout:
                if unread is not None:
                    unread.timeout = timeout
                return await self._receive()
        except TimeoutError as error:
            if unread is not None and unread.is_given_up:
                raise self._shedding.refusal(GIVEN_UP) from error
            raise BodyTooSlow(
                f"The body stopped arriving for {seconds:g} seconds, or came at less than {LEAST_BYTES_PER_SECOND} "
                "bytes a second; send the request again.",
            ) from error
        finally:
            if unread is not None:
                unread.timeout = None


class _CountedBody(_Body):
    """A body whose request takes a place: at once if all of it is here, otherwise once its key is known."""

    def __init__(self, shedding: Shedding, scope: Scope, receive: Receive) -> None:
        super().__init__(shedding, scope, receive)
        self._is_passed_on = scope["path"].rstrip("/") == FILES
        self._buffered_bytes = 0
        self._has_place = False
        self._is_counted = self._is_whole
        shedding.load.requests += self._is_counted

    async def receive(self) -> Message:
        if self._is_read:
            return await self._receive()
        if self._is_counted:
            self._take_place()
        message = await super().receive()
        shedding = self._shedding
        if not self._is_passed_on:
            size = len(message.get("body", b""))
            self._buffered_bytes += size
            shedding.load.buffered_bytes += size
        if not self._is_counted:
            self._count()
        if self._unread is not None and self._is_read:
            shedding.unread.end(self._unread)
        shedding.require_memory()
        return message

    def _count(self) -> None:
        shedding = self._shedding
        if not self._is_read:
            self._most = shedding.bound(self._scope, self._came)
            self._unread = shedding.unread.begin(shedding.whose(self._scope))
        self._is_counted = True
        shedding.load.requests += 1
        self._take_place()

    def _take_place(self) -> None:
        if not self._has_place:
            self._shedding.require_place(self._scope)
            self._has_place = True

    def let_go(self) -> None:
        if self._unread is not None:
            self._shedding.unread.end(self._unread)
        self._shedding.load.requests -= self._is_counted
        self._shedding.load.buffered_bytes -= self._buffered_bytes


def _is_whole(scope: Scope) -> bool:
    """Whether the whole request has already arrived, so that receiving it does not wait."""
    return "is_whole" in scope.get("extensions", {}).get(CONNECTION, ())


def _awaited_bytes(scope: Scope) -> int | None:
    """The announced length of a body that its client sends only once it is told to continue: 0 if it announces none.
    None for other bodies."""
    headers = dict(scope["headers"])
    is_awaited = headers.get(b"expect", b"").lower() == b"100-continue"
    return int(headers.get(b"content-length", 0)) if is_awaited else None
