"""A request in progress: its caller, the decision, and what has happened so far. Values and protocols only."""

from collections.abc import AsyncIterator, Callable, Mapping
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
    """The caller of a request. Nothing is sent after it has gone; leaving cancels the task that serves it, unless
    `outlive` was called."""

    @property
    def is_gone(self) -> bool: ...

    def outlive(self, seconds: float | None = None) -> None:
        """From now on the task continues when the caller leaves: the upstream's answer is read to its end, for at most
        this many seconds after leaving."""
        ...

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None: ...

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        """`chunk` is the source of `payload`; None for an ending of our own (an error, or a used-up budget)."""
        ...


class Observer(Protocol):
    """Metrics: notified of what happened."""

    def settled(self, entry: Entry) -> None: ...

    def unclassified(self) -> None: ...

    def attempt_failed(self, candidate: Candidate, error: BackendError) -> None: ...


class Accepted(msgspec.Struct, frozen=True):
    """A request whose answer is kept: its own input items as a JSON array, and the kept response or the conversation
    that it continues. With `store: false` it `is_brief`."""

    request_id: str
    items: bytes
    previous: str | None
    conversation_id: str | None
    is_brief: bool = False


class Incoming(msgspec.Struct, frozen=True):
    """One request as the HTTP layer received it. `cache_seconds` is the caller's use of the response cache: None means
    unspecified, 0 off. `headers` are those that go upstream (`backends.protocol.Call`). `batch_id` is set for lines of
    a batch."""

    operation: Operation
    credential: str | None
    body: bytes
    tags: tuple[str, ...] = ()
    cache_seconds: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    content_type: str = JSON
    batch_id: str | None = None
    model: str = ""
    """The model, if the path names it and not the body."""
    is_stream: bool = False
    """Whether it streams, if the path tells and not the body."""
    accepted: Callable[[Accepted], None] | None = None
    """Is told once it is accepted. Set where nobody waits for the answer, which is fetched later."""


class Answer(msgspec.Struct, frozen=True):
    """A reply whose first output has arrived: the chunks read so far, and the rest."""

    reply: Reply
    first: list[Chunk]
    rest: AsyncIterator[Chunk]


class Run(msgspec.Struct):
    """The state of a request. `candidate` and `key` are the ones being tried, or that answered; `entry` is the
    settlement, set once.

    `extra` is what attempts that did not answer may have cost anyway. For responses kept by the gateway (not by a
    provider), `previous_response_id` is the response it continues, and `is_kept` whether others may continue it.
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
