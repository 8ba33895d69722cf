"""A request under way: who asked, what was decided and what has come of it. Values and protocols only."""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

from backends.errors import BackendError
from backends.protocol import JSON, Chunk, Operation, Reply
from gateway.ledger.entry import Attempt, Entry, Intent
from gateway.request.metering import Meter
from gateway.request.settlement import NO_EXTRA, ExtraCost
from gateway.request.view import RequestView
from gateway.routing.decide import Choice
from gateway.routing.snapshot import Candidate


class Caller(Protocol):
    """Whoever asked. Sends nothing after it has gone; going away cancels the task that serves it, until `outlive`."""

    @property
    def is_gone(self) -> bool: ...

    def outlive(self, seconds: float | None = None) -> None:
        """From now on the task goes on when the caller leaves: the upstream's answer is read to its end, for at most
        so many seconds from then on."""
        ...

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None: ...

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        """`chunk` is what `payload` came from; None for an ending of our own making (an error, a spent budget)."""
        ...


class Observer(Protocol):
    """Metrics: told of what happened, never asked."""

    def settled(self, entry: Entry) -> None: ...

    def unclassified(self) -> None: ...

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None: ...


class Incoming(msgspec.Struct, frozen=True):
    """One request as the HTTP layer received it. `cache_seconds` is what its caller says of the response cache: None
    is nothing, 0 not to use it. `headers` are those that go upstream (`backends.protocol.Call`). `batch_id` is of the
    batch that it is a line of."""

    operation: Operation
    credential: str | None
    body: bytes
    tags: tuple[str, ...] = ()
    cache_seconds: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    content_type: str = JSON
    batch_id: str | None = None
    model: str = ""
    """Where the address names it, and not the body."""
    is_stream: bool = False
    """The same of whether it streams."""


class Answer(msgspec.Struct, frozen=True):
    """A reply whose first output has come: what was read of it, and the rest."""

    reply: Reply
    first: list[Chunk]
    rest: AsyncIterator[Chunk]


class Run(msgspec.Struct):
    """What is known of a request; `candidate` and `key` are tried or answer, `entry` is its settlement, once.

    `extra` is what attempts that did not answer may have cost nevertheless. Of a response `previous_response_id` is
    what it goes on from, and `is_kept` whether something may go on from it, both here and not at its provider.
    """

    view: RequestView
    body: bytes
    choice: Choice
    intent: Intent
    meter: Meter
    candidate: Candidate
    key: str = ""
    extra: ExtraCost = NO_EXTRA
    attempts: list[Attempt] = []
    entry: Entry | None = None
    headers: Mapping[str, str] = {}
    content_type: str = JSON
    rate_headers: Mapping[str, str] | None = None
    previous_response_id: str | None = None
    is_kept: bool = False
