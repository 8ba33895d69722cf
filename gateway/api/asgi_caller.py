"""A request's caller over ASGI: sends the answer and notices a disconnect. Knows no pipeline."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache
from typing import Any, ClassVar

from starlette.types import Receive, Scope, Send

from backends.protocol import Chunk
from gateway.process.patient_protocol import CONNECTION

HEARTBEAT_SECONDS = 15.0
PIECE_BYTES = 1 << 20
"""Written at once. A server copies what it writes twice, and a picture in one event has 40 MB."""

Listeners = set[Callable[[], None]]


class AsgiCaller:
    """The caller of one request. Sends a heartbeat when a stream has been silent for HEARTBEAT_SECONDS."""

    heartbeat: ClassVar[bytes] = b": still here\n\n"

    def __init__(self, send: Send) -> None:
        self._send = send
        self._heartbeat: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[object] | None = None
        self._outlived_seconds = 0.0
        self._giving_up: asyncio.TimerHandle | None = None
        self._head: dict[str, Any] | None = None
        self.loop = asyncio.get_running_loop()  # kept: asking for it is a system call, for who has forked
        self._spoke_at = 0.0
        self._is_amid = False
        self.is_started = False
        self.is_gone = False
        self.is_whole = False
        """The upstream's complete answer was sent: it did not break off, and we did not end it ourselves."""

    def cancels(self, task: asyncio.Task[object] | None) -> None:
        """A disconnect cancels `task`; None once the request has been served."""
        self._serving = task
        if task is None and self._giving_up is not None:
            self._giving_up.cancel()

    def outlive(self, seconds: float | None = None) -> None:
        if seconds is None:
            self._serving = None
        else:
            self._outlived_seconds = seconds

    def leave(self) -> None:
        """The connection is gone."""
        self.is_gone = True
        self.close()
        if self._serving is None:
            return
        if self._outlived_seconds:
            self._giving_up = self.loop.call_later(self._outlived_seconds, self._serving.cancel)
        else:
            self._serving.cancel()

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.is_started = True
        raw = [(b"content-type", content_type.encode("latin-1"))]
        raw += [(_written(name), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if content_type.startswith("text/event-stream"):
            raw += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            self._arm()
        self._head = {"type": "http.response.start", "status": status, "headers": raw}

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        if self.is_gone or not (payload or is_last):
            return
        if is_last:
            self.is_whole = chunk is not None
            self.close()
        elif self._heartbeat is not None:
            self._spoke_at = self.loop.time()
        if self._head is not None:
            head, self._head = self._head, None
            if is_last:  # the whole body is known, and so is its length
                head["headers"].append((b"content-length", str(len(payload)).encode()))
            await self._send(head)
        if len(payload) > PIECE_BYTES:
            payload = await self._send_all_but_last(payload)
        await self._send({"type": "http.response.body", "body": payload, "more_body": not is_last})
        self._is_amid = False

    async def _send_all_but_last(self, payload: bytes) -> bytes:
        """Returns the last piece."""
        self._is_amid = True
        if self._beating is not None:
            await self._beating  # it may wait for a slow caller
        last = (len(payload) - 1) // PIECE_BYTES * PIECE_BYTES
        for start in range(0, last, PIECE_BYTES):
            body = payload[start : start + PIECE_BYTES]
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
        return payload[last:]

    def close(self) -> None:
        """No heartbeat after this."""
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    def _arm(self, seconds: float = HEARTBEAT_SECONDS) -> None:
        self._heartbeat = self.loop.call_later(seconds, self._beat)

    def _beat(self) -> None:
        """Beats only after the first chunk, before which the answer may still become an error, and between chunks."""
        left = self._spoke_at + HEARTBEAT_SECONDS - self.loop.time()
        if self._head is not None or self._is_amid or left > 0:
            self._arm(max(left, 0.0) or HEARTBEAT_SECONDS)
            return
        self._beating = asyncio.ensure_future(self._send_heartbeat())
        self._arm()

    async def _send_heartbeat(self) -> None:
        if self._heartbeat is not None:  # otherwise the end came in the same turn of the event loop
            await self._send({"type": "http.response.body", "body": self.heartbeat, "more_body": True})


@lru_cache(64)
def _written(name: str) -> bytes:
    """Remembered, since answers have the same few names: what is the same object is compared and hashed once."""
    return name.encode("ascii")


async def while_connected(
    work: Coroutine[Any, Any, object], caller: AsgiCaller, scope: Scope, receive: Receive
) -> None:
    """Runs the work. A disconnect of the caller cancels it, which settles the request and closes the upstream."""
    task = asyncio.current_task(caller.loop)
    assert task is not None
    caller.cancels(task)
    listeners = _listeners(scope)
    watcher = None
    if listeners is None:
        watcher = asyncio.create_task(_watch(receive, caller))
    else:
        listeners.add(caller.leave)
    try:
        await work
    except asyncio.CancelledError:
        if not caller.is_gone:
            raise
        task.uncancel()
    finally:
        caller.cancels(None)
        if watcher is not None:
            watcher.cancel()
        elif listeners is not None:
            listeners.discard(caller.leave)


def _listeners(scope: Scope) -> Listeners | None:
    """The set of callbacks that our own server calls when the connection is lost; other servers must be polled."""
    extension = scope.get("extensions", {}).get(CONNECTION)
    return None if extension is None else extension["listeners"]


async def _watch(receive: Receive, caller: AsgiCaller) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    caller.leave()
