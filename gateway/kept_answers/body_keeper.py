"""Writes prompts and answers of keys that opted in to a store, in the background: requests never wait for it, and what
is pending is lost in a crash.

The books do not depend on it. While the store is down the newest texts wait in memory, up to a limit; older ones are
dropped and counted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backends.protocol import Chunk
from gateway.request.callers import PassingCaller
from gateway.request.run import Caller

log = logging.getLogger(__name__)
MOST_WAITING_BYTES = 64 << 20
BATCH = 100
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Bodies:
    """A request's and its answer's bytes, in their wire formats."""

    request_id: str
    key_id: str
    request: bytes
    answer: bytes

    @property
    def size(self) -> int:
        return len(self.request) + len(self.answer)


class BodyStore(Protocol):
    """Stores bodies encrypted."""

    async def put(self, batch: Sequence[Bodies]) -> None:
        """A second put for a request is ignored."""
        ...


class BodyReader(Protocol):
    """Reads stored bodies, for people."""

    async def read(self, request_id: str, *, reader: str) -> Bodies | None:
        """None if nothing is stored; otherwise `reader` is written to the audit log."""
        ...


class BodyKeeper:
    """`listen` on a caller, `run` until cancelled, then `drain`."""

    def __init__(self, store: BodyStore, *, most_waiting_bytes: int = MOST_WAITING_BYTES) -> None:
        self._store = store
        self._most_waiting_bytes = most_waiting_bytes
        self._waiting: deque[Bodies] = deque()
        self._waiting_bytes = 0
        self._has_some = asyncio.Event()
        self.dropped = 0

    def listen(self, caller: Caller, *, request_id: str, key_id: str, body: bytes) -> Caller:
        """Wraps the caller so that request and answer are kept once the answer is complete."""
        return _Listening(caller, self, request_id, key_id, body)

    def keep(self, bodies: Bodies) -> None:
        """Queue bodies for the store; the oldest waiting ones are dropped to make room."""
        if bodies.size > self._most_waiting_bytes:
            self.dropped += 1
            return
        self._waiting.append(bodies)
        self._waiting_bytes += bodies.size
        while self._waiting_bytes > self._most_waiting_bytes:
            self._waiting_bytes -= self._waiting.popleft().size
            self.dropped += 1
        self._has_some.set()

    async def run(self) -> None:
        """Store what is queued, forever."""
        while True:
            await self._has_some.wait()
            try:
                await self._store_some()
            except Exception as error:  # noqa: BLE001 - the outermost edge of this task: whatever a database raises, go on
                log.warning("cannot store the text of %d requests (%s); trying again", len(self._waiting), error)
                await asyncio.sleep(RETRY_SECONDS)

    async def drain(self, timeout_seconds: float) -> None:
        """Store what is queued; what cannot be stored in time is lost and logged."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self._waiting:
                    await self._store_some()
        except Exception as error:  # noqa: BLE001 - the process is about to end: there is nothing else to try
            log.warning("the text of %d requests was not stored (%s)", len(self._waiting), type(error).__name__)

    async def _store_some(self) -> None:
        batch = [self._waiting[place] for place in range(min(BATCH, len(self._waiting)))]
        await self._store.put(batch)
        for bodies in batch:
            if self._waiting and self._waiting[0] is bodies:  # else dropped meanwhile
                self._waiting.popleft()
                self._waiting_bytes -= bodies.size
        if not self._waiting:
            self._has_some.clear()


@dataclass(slots=True)
class _Listening(PassingCaller):
    """A Caller that notes what passes."""

    keeper: BodyKeeper
    request_id: str
    key_id: str
    body: bytes
    parts: list[bytes] = field(default_factory=list[bytes])

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        await self.caller.send(payload, chunk=chunk, is_last=is_last)
        self.parts.append(payload)
        if is_last:
            self.keeper.keep(Bodies(self.request_id, self.key_id, self.body, b"".join(self.parts)))
