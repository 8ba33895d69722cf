"""Refuses work before memory runs out: too many requests at once, too many bytes of bodies, bodies that never end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api.unread_bodies import Unread, UnreadBodies
from gateway.errors import BodyTooSlow, Overloaded
from gateway.process.patient_protocol import CONNECTION

BODY_SECONDS = 60.0
"""Between two parts of a body."""
LEAST_BYTES_PER_SECOND = 500
"""Of a body on the whole, beyond those seconds: a byte now and then would hold its place for days."""
RETRY_SECONDS = 1.0
API = "/v1/"
FILES = "/v1/files"
"""Where bodies pass on to the disk as they come: of each no more than one part is held."""
UNASKED_BYTES = 1 << 16
"""Of a body, taken of anybody: what comes in one piece is not worth asking whose it is."""
GIVEN_UP = (
    "more than half of the requests that fit are bodies of this key that have not come yet, and others need the room. "
    "Send bodies faster, or fewer at once"
)
Bound = Callable[[Scope, int], int]
"""For a body that has come to so many bytes: how many it may come to. Raises RequestError."""
BODILESS = ("GET", "HEAD", "OPTIONS")


@dataclass(slots=True)
class Load:
    """What this process has taken on: requests from their first byte to their last, and the bodies they hold."""

    requests: int = 0
    buffered_bytes: int = 0
    shed: int = 0


class Shedding:
    """Wraps the application. Health, metrics and administration are never refused for what others do: they say what is
    going on. `bound` says how long each body may be, `whose` the id of its key; both raise RequestError.

    A request takes a place once its body is there, or its key is known: strangers could take them all and send no more.
    A key that does so makes room for others.

    A refusal is raised from `receive`, so that each endpoint tells it in its own error format.
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
        """Raises Overloaded, and what `whose` does."""
        if self._load.requests > self._max_requests and not self._unread.make_room_for(self._whose(scope)):
            raise self._refusal(f"{self._max_requests:,} requests are under way here")

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Of one that is never refused for what others do."""
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
                f"The body stopped arriving for {seconds:g} seconds, or came with less than {LEAST_BYTES_PER_SECOND} "
                "bytes a second; send the request again.",
            ) from error
        finally:
            if unread is not None:
                unread.timeout = None

    def _refusal(self, why: str) -> Overloaded:
        self._load.shed += 1
        return Overloaded(
            f"This gateway takes no more requests for now: {why}. Try again in a moment.",
            retry_after_seconds=RETRY_SECONDS,
        )


def _is_whole(scope: Scope) -> bool:
    """Whether the request has come whole already: to receive it waits for nothing."""
    return "is_whole" in scope.get("extensions", {}).get(CONNECTION, ())
