"""Replies over HTTP, for every wire format: reads with deadlines, feeds the format's reader, and releases connections.

The reader decides what events mean; this file decides how long to wait, and which error a lost connection becomes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Self

from msgspec.structs import replace

from backends.errors import (
    BackendError,
    StreamBroken,
    StreamStalled,
    UnreadableAnswer,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.http.client import HttpResponse
from backends.http.errors import broken, no_answer
from backends.http.sse import EventTooLarge, SseParser
from backends.http.stream_reader import StreamReader
from backends.protocol import EVENT_STREAM, JSON, Chunk, Reply, Timeouts
from backends.usage import Usage
from backends.value_counts import MostValues

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_ERROR_BYTES = 1024 * 1024
_CACHES = frozenset({"cf-aig-cache-status", "helicone-cache", "x-openrouter-cache-status", "x-portkey-cache-status"})
_BEGINNING_BYTES = 1024  # tell JSON from a page
MOST = MostValues(containers=1_000_000, names=4_000_000, values=8_000_000)
"""Of one answer, or one event: 8,000 tokens with twenty logprobs each, 64 MB of embeddings."""
_NEVER_TOO_MANY_BYTES = 2 * MOST.containers
"""Of a whole stream: each of its events is shorter."""


Told = Callable[[UpstreamRejected, bytes], UpstreamRejected]
"""From a refusal and its body to what the caller may hear of it."""


class TimedResponse:
    """Reads a response with a deadline that counts only while we wait: a slow caller is not the upstream's fault.

    A read only moves the deadline. There is one timer, set by the first read that has to wait; it never fires later
    than the deadline (which is never moved closer than `idle_seconds`), and if it fires too early it is set again.
    """

    def __init__(self, response: HttpResponse, backend: str, timeouts: Timeouts, started_at: float) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._backend = backend
        self._idle_seconds = timeouts.idle_seconds
        self._loop = asyncio.get_running_loop()
        self._deadline = started_at + timeouts.first_byte_seconds
        self._is_waiting = False
        self._is_expired = False
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, *, extend: bool) -> bytes:
        """The next piece, empty at the end. `extend` restarts the idle timeout: the last piece was progress.

        Raises UpstreamTimeout or UpstreamUnavailable.
        """
        if extend:
            self._deadline = self._loop.time() + self._idle_seconds
        if self._timer is None and not self._response.is_ready:
            first = min(self._deadline, self._loop.time() + self._idle_seconds)
            self._timer = self._loop.call_at(first, self._check)
        self._is_waiting = True
        try:
            return await self._response.read()
        except UpstreamUnavailable:
            if self._is_expired:
                raise UpstreamTimeout(f"{self._backend} sent nothing for too long") from None
            raise
        finally:
            self._is_waiting = False

    async def read_all(self, limit: int) -> bytes:
        """The whole body. Raises UpstreamTimeout, or UnreadableAnswer if it is cut off or exceeds `limit` bytes."""
        came = bytearray()  # pieces would leave holes in the heap
        try:
            while piece := await self.read(extend=bool(came)):
                came += piece
                if len(came) > limit:
                    raise UpstreamUnavailable(f"{self._backend} answered with over {limit} bytes")
        except UpstreamUnavailable as error:
            raise no_answer(error.message, bytes(came[:_BEGINNING_BYTES]), length=len(came)) from error
        body = bytes(came)
        came.clear()
        if not MOST.surely_allow(body):
            raise no_answer(f"{self._backend} answered with too many values", body)
        return body

    def close(self, *, is_complete: bool) -> None:
        """Cancel the timer, and release the connection or drop it."""
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

    def __init__(self, chunk: Chunk, content_type: str = JSON) -> None:
        self._chunk: Chunk | None = chunk
        self.content_type = content_type

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._chunk is None:
            raise StopAsyncIteration
        chunk, self._chunk = self._chunk, None
        return chunk

    async def aclose(self) -> None:
        return None


class StreamReply:
    """A stream of events.

    Not a generator: callers stop after the last chunk, and an unfinished generator needs an extra task to be closed.
    """

    def __init__(
        self,
        response: TimedResponse,
        reader: StreamReader,
        backend: str,
        content_type: str = EVENT_STREAM,
        told: Told = lambda refusal, _: refusal,
    ) -> None:
        self.content_type = content_type
        self._response = response
        self._reader = reader
        self._backend = backend
        self._told = told
        self._parser = SseParser()
        self._events: deque[bytes] = deque()
        self._chunks: deque[Chunk] = deque()
        self._comments = self._came = 0
        self._has_events = False
        self._has_ended = False
        self._is_over = False
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        while not self._chunks:
            if self._reader.is_done:
                raise StopAsyncIteration
            if self._events:
                joined = self._reader.join(self._events) if len(self._events) > 1 else None
                if joined is not None:
                    return joined
                try:
                    self._chunks.extend(self._reader.read(self._events.popleft()))
                except UpstreamRejected as refusal:
                    raise self._told(refusal, refusal.body) from None
            elif self._is_over:
                raise StopAsyncIteration
            elif self._has_ended:
                self._is_over = True
                self._chunks.extend(self._reader.end())
            else:
                await self._receive()
        return self._chunks.popleft()

    async def _receive(self) -> None:
        # Until the answer has started, heartbeats and empty events are not progress: they must neither extend the
        # first-byte deadline nor start the shorter idle one while a model reasons for long.
        extend = self._reader.is_started and (self._has_events or self._parser.comments > self._comments)
        self._comments = self._parser.comments
        try:
            piece = await self._response.read(extend=extend)
            events = self._parser.receive(piece) if piece else self._parser.finish()
        except (UpstreamTimeout, UpstreamUnavailable, EventTooLarge) as error:
            raise self._translated(error) from error
        self._came += len(piece)
        if self._came > _NEVER_TOO_MANY_BYTES and not MOST.surely_allow_each(events):
            raise broken(self._backend, "sent an event of too many values", is_started=self._reader.is_started)
        self._has_events, self._has_ended = bool(events), not piece
        self._events.extend(events)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._response.close(is_complete=self._reader.is_done)

    def _translated(self, error: Exception) -> BackendError:
        if isinstance(error, BackendError):
            return broken_off(error, is_started=self._reader.is_started)
        return broken(self._backend, "sent an endless event", is_started=self._reader.is_started)


class KeptReply:
    """An answer that a cache between us and the provider had kept: its usage is of the first time, or of no tokens, and
    nobody bills it again."""

    def __init__(self, reply: Reply) -> None:
        self.content_type = reply.content_type
        self._reply = reply
        self._chunks = aiter(reply)
        self._has_usage = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await anext(self._chunks)
        if chunk.usage is None and (self._has_usage or not chunk.is_done):
            so_far = chunk.usage_so_far or Usage()
            return replace(chunk, usage_so_far=replace(so_far, charged_pico_usd=0, is_estimated=True))
        self._has_usage = True
        return replace(chunk, usage=replace(chunk.usage or Usage(), charged_pico_usd=0))

    async def aclose(self) -> None:
        await self._reply.aclose()


def is_kept(headers: Mapping[str, str]) -> bool:
    """Whether the cache of Cloudflare, Helicone, OpenRouter or Portkey (a `SEMANTIC HIT`, too) answered."""
    if _CACHES.isdisjoint(headers):  # asked of every answer: 0.5 us
        return False
    return any(headers.get(name, "").upper().endswith("HIT") for name in _CACHES)


class BytesReply:
    """A stream of raw bytes whose usage the provider does not report; `usage` is what is known of it."""

    def __init__(self, response: TimedResponse, backend: str, content_type: str, usage: Usage | None) -> None:
        self.content_type = content_type
        self._response = response
        self._backend = backend
        self._usage = usage
        self._has_some = False
        self._is_over = False
        self._is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if self._is_over:
            raise StopAsyncIteration
        try:
            piece = await self._response.read(extend=self._has_some)
        except (UpstreamTimeout, UpstreamUnavailable) as error:
            raise broken_off(error, is_started=self._has_some) from error
        if piece:
            self._has_some = True
            return Chunk(piece, has_output=True)
        if not self._has_some:
            raise UnreadableAnswer(f"{self._backend} answered with nothing")
        self._is_over = True
        return Chunk(b"", usage=self._usage, is_done=True)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._response.close(is_complete=self._is_over)


def broken_off(error: BackendError, *, is_started: bool) -> BackendError:
    """The error for a connection that was lost or silent for too long."""
    if not is_started:
        return error if isinstance(error, UpstreamTimeout) else UnreadableAnswer(error.message)
    kind = StreamStalled if isinstance(error, UpstreamTimeout) else StreamBroken
    return kind(error.message)
