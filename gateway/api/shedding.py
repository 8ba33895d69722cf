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
        self._load = load
        self._bound = bound
        self._whose = whose
        self._unread = UnreadBodies(max_requests)
        self._max_requests = max_requests
        self._max_buffered_bytes = max_buffered_bytes
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in BODILESS:
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST" or not scope["path"].startswith(API):
            await self._app(scope, self._bounded(scope, receive), send)
            return
        load = self._load
        body_bytes, most, is_read, has_place = 0, UNASKED_BYTES, False, False
        is_whole = is_counted = _is_whole(scope)
        unread: Unread | None = None
        is_passed_on = scope["path"].rstrip("/") == FILES
        began = 0.0 if is_whole else asyncio.get_running_loop().time()

        async def counted() -> Message:
            nonlocal body_bytes, most, is_read, is_counted, has_place, unread
            if is_read:
                return await receive()
            if is_counted and not has_place:
                self._require_place(scope)
                has_place = True
            message = await (receive() if is_whole else self._in_time(scope, receive, began, body_bytes, unread))
            size = len(message.get("body", b""))
            body_bytes += size
            if not is_passed_on:
                load.buffered_bytes += size
            is_read = not message.get("more_body", False)
            if body_bytes > most or not (is_read or is_counted):
                most = self._bound(scope, body_bytes)
            if not is_counted:
                load.requests += 1
                is_counted = True
                if not is_read:
                    unread = self._unread.begin(self._whose(scope))
                self._require_place(scope)
                has_place = True
            if unread is not None and is_read:
                self._unread.end(unread)
            if load.buffered_bytes > self._max_buffered_bytes:
                raise self._refusal(f"the requests under way hold {self._max_buffered_bytes >> 20:,} MB")
            return message

        load.requests += is_counted
        try:
            await self._app(scope, counted, send)
        finally:
            if unread is not None:
                self._unread.end(unread)
            load.requests -= is_counted
            load.buffered_bytes -= 0 if is_passed_on else body_bytes

    def _require_place(self, scope: Scope) -> None:
        """Raises Overloaded, and whatever `whose` raises."""
        if self._load.requests > self._max_requests and not self._unread.make_room_for(self._whose(scope)):
            raise self._refusal(f"{self._max_requests:,} requests are under way")

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """For requests that are never refused because of load: limits only their own body."""
        came, most, is_read = 0, UNASKED_BYTES, False
        began = asyncio.get_running_loop().time()

        async def bounded() -> Message:
            nonlocal came, most, is_read
            message = await (receive() if is_read else self._in_time(scope, receive, began, came))
            came += len(message.get("body", b""))
            is_read = not message.get("more_body", False)
            if came > most:
                most = self._bound(scope, came)
            return message

        return bounded

    async def _in_time(
        self, scope: Scope, receive: Receive, began: float, came: int, unread: Unread | None = None
    ) -> Message:
        if _is_whole(scope):
            return await receive()
        if not came and (announced := _awaited_bytes(scope)) is not None:
            self._bound(scope, announced)  # receiving tells the client to send its body
        if unread is not None and unread.is_given_up:
            raise self._refusal(GIVEN_UP)
        seconds = self._body_seconds
        due = min(asyncio.get_running_loop().time(), began + came / LEAST_BYTES_PER_SECOND) + seconds
        try:
            async with asyncio.timeout_at(due) as timeout:
                if unread is not None:
                    unread.timeout = timeout
                return await receive()
        except TimeoutError as error:
            if unread is not None and unread.is_given_up:
                raise self._refusal(GIVEN_UP) from error
            raise BodyTooSlow(
                f"The body stopped arriving for {seconds:g} seconds, or came at less than {LEAST_BYTES_PER_SECOND} "
                "bytes a second; send the request again.",
            ) from error
        finally:
            if unread is not None:
                unread.timeout = None

    def _refusal(self, why: str) -> Overloaded:
        self._load.shed += 1
        return Overloaded(
            f"This gateway accepts no more requests for now: {why}. Try again in a moment.",
            retry_after_seconds=RETRY_SECONDS,
        )


def _is_whole(scope: Scope) -> bool:
    """Whether the whole request has already arrived, so that receiving it does not wait."""
    return "is_whole" in scope.get("extensions", {}).get(CONNECTION, ())


def _awaited_bytes(scope: Scope) -> int | None:
    """The announced length of a body that its client sends only once it is told to continue: 0 if it announces none.
    None for other bodies."""
    headers = dict(scope["headers"])
    is_awaited = headers.get(b"expect", b"").lower() == b"100-continue"
    return int(headers.get(b"content-length", 0)) if is_awaited else None
