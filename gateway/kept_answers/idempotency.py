"""Serves equal requests with the same idempotency key once, and sends its answer to all. Knows no HTTP framework and no
store.

Serving does not depend on any connection: a caller that disconnects and retries with the same key gets the answer, from
its beginning. Only complete answers are kept; after a failure the next request with that key is served anew.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from backends.errors import StreamBroken
from gateway.errors import BreakevenError, IdempotencyMismatch, InvalidRequest, Overloaded, StoreDown
from gateway.kept_answers.store_down import told_as_overloaded
from gateway.process.tasks import to_its_end

log = logging.getLogger(__name__)
LONGEST_KEY = 255
LARGEST_KEPT_BYTES = 8 << 20
"""The largest answer to keep; a larger one is shared while it is served and then forgotten."""
LARGEST_SHARED_BYTES = 64 << 20
"""Limit of a streamed answer, the same as for a whole one: it is buffered even if no caller reads it."""
POLL_SECONDS = 0.1
DRAIN_SECONDS = 10.0

Headers = Sequence[tuple[bytes, bytes]]


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """A whole answer as it was sent."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A stored name: the first request's `fingerprint`, and its answer once that is complete."""

    fingerprint: bytes
    recorded: Recorded | None


class IdempotencyStore(Protocol):
    """Names and their answers, for a day or so. Every method may raise StoreDown."""

    @property
    def lease_seconds(self) -> float | None:
        """How long a claim lasts without `renew`; None if it ends with this process."""
        ...

    async def claim(self, name: str, fingerprint: bytes) -> Found | None:
        """None if the name is now claimed by the caller; else what is stored for it."""
        ...

    async def renew(self, name: str, fingerprint: bytes) -> None:
        """Extend the claim by another lease."""
        ...

    async def finish(self, name: str, fingerprint: bytes, recorded: Recorded, *, owner: str = "") -> None:
        """Store the answer. A full store may evict other answers of an `owner` who has many."""
        ...

    async def abandon(self, name: str, fingerprint: bytes) -> None:
        """Release the claim: the next request is served."""
        ...


class Sink(Protocol):
    """Where an answer goes."""

    async def start(self, status: int, headers: Headers) -> None: ...

    async def send(self, body: bytes, *, is_last: bool) -> None: ...


Serve = Callable[[Sink], Awaitable[bool]]
"""Serves the request into a sink; True when the answer is whole. May raise a BreakevenError."""


@dataclass(slots=True)
class SharedAnswer:
    """An answer under way: one writes (it is a Sink), any number follow from the beginning.

    Its last piece is held back until `end`: a caller that has the whole answer may retry, and must find it stored.
    """

    fingerprint: bytes
    owner: str = ""
    status: int | None = None
    headers: Headers = ()
    pieces: list[bytes] = field(default_factory=list[bytes])
    holds_last: bool = False
    is_ended: bool = False
    size: int = 0
    error: BreakevenError | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers

    async def send(self, body: bytes, *, is_last: bool) -> None:
        """Raises StreamBroken for an endless answer."""
        self.size += len(body)
        if self.size > LARGEST_SHARED_BYTES and not is_last:
            raise StreamBroken(
                f"it is longer than {LARGEST_SHARED_BYTES >> 20} MB, the most that is held for an idempotency key"
            )
        self.pieces.append(body)
        self.holds_last = is_last
        self._wake()

    def end(self, error: BreakevenError | None = None) -> None:
        """Nothing more comes."""
        self.is_ended, self.error = True, error
        self._wake()

    def recorded(self) -> Recorded | None:
        """The whole answer; None if it is too large to keep, or an error."""
        if self.status != 200 or self.size > LARGEST_KEPT_BYTES:
            return None
        return Recorded(self.status, tuple(self.headers), b"".join(self.pieces))

    async def follow(self, sink: Sink, extra: Headers = ()) -> None:
        """Send the whole answer as it arrives. Raises what serving raised."""
        sent = 0
        while True:
            changed = self._changed
            if sent < len(self.pieces) - (self.holds_last and not self.is_ended):
                if sent == 0:
                    assert self.status is not None
                    await sink.start(self.status, (*self.headers, *extra))
                sent += 1
                await sink.send(self.pieces[sent - 1], is_last=self.is_ended and sent == len(self.pieces))
            elif self.is_ended:
                if self.error is not None:
                    raise self.error
                return
            else:
                await changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


REPLAYED: Headers = ((b"idempotent-replayed", b"true"),)


class Idempotency:
    """One per worker process. `identify` returns a credential's owner, or raises Unauthenticated."""

    def __init__(self, store: IdempotencyStore, identify: Callable[[str | None], str]) -> None:
        self._store = store
        self._identify = identify
        self._running: dict[str, SharedAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(
        self, key: str, credential: str | None, content: Sequence[bytes], serve: Serve, sink: Sink
    ) -> None:
        """Serve, or replay the answer to an equal earlier request. Requests with the same `content` are equal.

        Raises IdempotencyMismatch for another request under the same key, Overloaded when the store is down, and
        whatever `serve` raises.
        """
        if not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
            raise InvalidRequest(
                f"Idempotency-Key takes 1 to {LONGEST_KEY} printable characters.", param="idempotency-key"
            )
        owner = self._identify(credential)
        name = hashlib.sha256(f"{owner}\0{key}".encode()).hexdigest()
        fingerprint = hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in content)).digest()
        with told_as_overloaded(
            "idempotency keys cannot be checked",
            "Idempotency keys cannot be checked right now; try again, or send the request without one.",
        ):
            await self._answer(name, SharedAnswer(fingerprint, owner), serve, sink)

    def go_on(self, work: Awaitable[None]) -> None:
        """`work` goes on after its answer was sent; `aclose` waits for it too."""
        self._start(work)

    async def aclose(self) -> None:
        """Wait for requests in progress, then cancel them: every request is settled before the journal closes."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, name: str, own: SharedAnswer, serve: Serve, sink: Sink) -> None:
        fingerprint = own.fingerprint
        while True:
            if (shared := self._running.get(name)) is not None:
                _require_equal(shared.fingerprint, fingerprint)
                await shared.follow(sink, REPLAYED)
                return
            found = await self._claim(name, fingerprint)
            if found is None:
                self._running[name] = own
                self._start(self._lead(name, own, serve))
                await own.follow(sink)
                return
            _require_equal(found.fingerprint, fingerprint)
            if found.recorded is not None:
                await sink.start(found.recorded.status, (*found.recorded.headers, *REPLAYED))
                await sink.send(found.recorded.body, is_last=True)
                return
            await asyncio.sleep(POLL_SECONDS)  # another worker is serving it

    async def _claim(self, name: str, fingerprint: bytes) -> Found | None:
        claiming = asyncio.ensure_future(self._store.claim(name, fingerprint))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with contextlib.suppress(StoreDown):
                if await claiming is None:  # by nobody now: whoever asks again would wait for the end of the lease
                    await self._store.abandon(name, fingerprint)
            raise

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lead(self, name: str, shared: SharedAnswer, serve: Serve) -> None:
        is_whole = False
        failure: BreakevenError | None = Overloaded("The gateway is stopping; try again.", retry_after_seconds=1.0)
        try:
            async with self._renewing(name, shared.fingerprint):
                is_whole = await serve(shared)
            failure = None
        except BreakevenError as error:
            failure = error
        except Exception:
            log.exception("a request with an idempotency key failed")
            failure = BreakevenError("the request failed")
        finally:
            # Kept before anybody can ask again: between the two there must be no moment without either.
            await self._keep(name, shared, is_whole=is_whole)
            del self._running[name]
            shared.end(failure)

    async def _keep(self, name: str, shared: SharedAnswer, *, is_whole: bool) -> None:
        recorded = shared.recorded() if is_whole else None
        try:
            if recorded is None:
                await self._store.abandon(name, shared.fingerprint)
            else:
                await self._store.finish(name, shared.fingerprint, recorded, owner=shared.owner)
        except StoreDown as error:
            log.warning("the answer to an idempotency key is not kept: %s", error)

    @asynccontextmanager
    async def _renewing(self, name: str, fingerprint: bytes) -> AsyncGenerator[None]:
        """Hold the claim for as long as it takes."""
        lease = self._store.lease_seconds
        if lease is None:
            yield
            return

        async def renew() -> None:
            while True:
                await asyncio.sleep(lease / 3)
                with contextlib.suppress(StoreDown):  # the next one may come through before the lease ends
                    await to_its_end(self._store.renew(name, fingerprint))

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))  # a renewal that the store got after `abandon` would claim the name for nobody


def _require_equal(known: bytes, asked: bytes) -> None:
    if known != asked:
        raise IdempotencyMismatch(
            "This idempotency key was already used with a different request; use a new key for a new request."
        )
