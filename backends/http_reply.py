"""An HTTP answer under way, for every wire format: reads with deadlines, feeds the format's reader, ends properly.

The reader decides what events mean; this file decides how long to wait and what a lost connection is called.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Protocol

from backends.errors import BackendError, StreamBroken, StreamStalled, UpstreamTimeout, UpstreamUnavailable
from backends.http_client import HttpResponse
from backends.protocol import Chunk, Timeouts
from backends.sse import EventTooLarge, SseParser

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024


class StreamReader(Protocol):
    """Turns events' data into chunks; one per stream. Every method may raise a BackendError."""

    is_started: bool
    """A chunk has been made: from now on a failure is StreamBroken."""
    is_done: bool
    """The answer is complete: nothing more is read."""

    def read(self, data: bytes) -> list[Chunk]: ...

    def end(self) -> list[Chunk]:
        """The stream ended without saying so."""
        ...


class TimedResponse:
    """Reads a response under a deadline that runs only while we wait: a slow caller is not the upstream's fault.

    A read sets only the deadline. The one timer never stands later than it (no deadline is ever set closer than
    `idle_seconds`), and when it fires too early it is set again.
    """

    def __init__(self, response: HttpResponse, backend: str, timeouts: Timeouts, started_at: float) -> None:
        self._response = response
        self._backend = backend
        self._idle_seconds = timeouts.idle_seconds
        self._loop = asyncio.get_running_loop()
        self._deadline = started_at + timeouts.first_byte_seconds
        self._is_waiting = False
        self._is_expired = False
        first = min(self._deadline, started_at + timeouts.idle_seconds)
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(first, self._check)

    async def read(self, *, extend: bool) -> bytes:
        """The next piece, empty at the end. `extend` starts the idle timeout anew: the last piece was progress.

        Raises UpstreamTimeout or UpstreamUnavailable.
        """
        if extend:
            self._deadline = self._loop.time() + self._idle_seconds
        self._is_waiting = True
        try:
            return await self._response.read()
        except UpstreamUnavailable:
            if self._is_expired:
                message = f"{self._backend} sent nothing for too long"
                raise UpstreamTimeout(message, backend=self._backend) from None
            raise
        finally:
            self._is_waiting = False

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises UpstreamTimeout, or UpstreamUnavailable when it is larger than `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read(extend=bool(pieces)):
            size += len(piece)
            if size > limit:
                raise UpstreamUnavailable(f"{self._backend} answered with over {limit} bytes", backend=self._backend)
            pieces.append(piece)
        return b"".join(pieces)

    def close(self, *, is_complete: bool) -> None:
        """Stop the clock, and free the connection or cut it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_complete:
            self._response.finish()
        else:
            self._response.close()

    def _check(self) -> None:
        now = self._loop.time()
        if self._is_waiting and now >= self._deadline:
            self._is_expired = True
            self._response.close()
            self._timer = None
            return
        sooner = min(self._deadline, now + self._idle_seconds)
        self._timer = self._loop.call_at(sooner if sooner > now else now + self._idle_seconds, self._check)


class PlainReply:
    """A whole answer, already read."""

    content_type = "application/json"

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        yield self._chunk

    async def aclose(self) -> None:
        return None


class StreamReply:
    """A stream of events."""

    content_type = "text/event-stream"

    def __init__(self, response: TimedResponse, reader: StreamReader, backend: str) -> None:
        self._response = response
        self._reader = reader
        self._backend = backend
        self._is_closed = False

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        parser = SseParser()
        reader = self._reader
        comments = 0
        extend = False
        while not reader.is_done:
            try:
                piece = await self._response.read(extend=extend)
                events = parser.receive(piece) if piece else parser.finish()
            except (UpstreamTimeout, UpstreamUnavailable, EventTooLarge) as error:
                raise self._translated(error) from error
            for event in events:
                for chunk in reader.read(event):
                    yield chunk
                if reader.is_done:
                    return
            if not piece:
                for chunk in reader.end():
                    yield chunk
                return
            # A heartbeat is progress only once the answer has begun: it must not put off the first-byte deadline.
            extend = bool(events) or (reader.is_started and parser.comments > comments)
            comments = parser.comments

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._response.close(is_complete=self._reader.is_done)

    def _translated(self, error: Exception) -> BackendError:
        message = str(error) if isinstance(error, BackendError) else f"{self._backend} sent an endless event"
        if not self._reader.is_started:
            return error if isinstance(error, BackendError) else UpstreamUnavailable(message, backend=self._backend)
        kind = StreamStalled if isinstance(error, UpstreamTimeout) else StreamBroken
        return kind(message, backend=self._backend)
