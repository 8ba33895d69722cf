"""The interface between the gateway and its backends. Implemented once per wire format, and by a scripted fake."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeGuard, get_args, runtime_checkable

import msgspec

from backends.response_names import ResponseNames
from backends.usage import EngineTimings, Usage

MediaOperation = Literal[
    "images.generations",
    "images.edits",
    "audio.speech",
    "audio.transcriptions",
    "audio.translations",
    "moderations",
    "rerank",
]
"""Operations with models of their own, in OpenAI's wire format only (backends/formats/media.py); except reranking,
which that format lacks (backends/formats/rerank.py)."""
Operation = Literal[
    "chat.completions",
    "completions",
    "embeddings",
    "responses",
    "responses.input_tokens",
    "messages",
    "messages.count_tokens",
    "generate_content",
    "generate_content.count_tokens",
    MediaOperation,
]
MEDIA: Final = frozenset[Operation](get_args(MediaOperation))
RESPONSES: Final = frozenset[Operation]({"responses", "responses.input_tokens"})
COUNT_OF_CONTENT: Final[Operation] = "generate_content.count_tokens"
CONTENT: Final = frozenset[Operation]({"generate_content", COUNT_OF_CONTENT})
"""Calls in Gemini's own format."""
COUNTS: Final = frozenset[Operation]({"responses.input_tokens", "messages.count_tokens", COUNT_OF_CONTENT})
"""Operations that only count input tokens."""


def is_media(operation: Operation) -> TypeGuard[MediaOperation]:
    return operation in MEDIA


JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream"
TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})
"""W3C trace context, forwarded by every backend."""
VENDOR_HEADERS: Final = frozenset({"anthropic-beta", "anthropic-user-profile-id", "anthropic-version"})
"""Provider-specific headers, forwarded only by backends of that wire format; they may change the answer."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `first_byte_seconds` runs from the attempt's start, connecting included, until the answer begins;
    `idle_seconds` from then on between two chunks, and only while we wait for one."""

    connect_seconds: float = 5.0
    first_byte_seconds: float = 600.0
    idle_seconds: float = 120.0


class Call(msgspec.Struct, frozen=True):
    """One attempt at one backend. `body` is the caller's, unchanged: only the adapter edits it. It is JSON, or a form
    if files are uploaded, as `content_type` says."""

    operation: Operation
    upstream_model: str
    body: bytes
    is_stream: bool
    request_id: str
    timeouts: Timeouts = Timeouts()
    wants_usage_chunk: bool = False
    cache_salt: str | None = None
    key: str = ""
    """The label of the key to use, if the backend has several; empty: the backend chooses."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """The caller's TRACE_HEADERS and VENDOR_HEADERS, names in lower case."""
    input_tokens: int = 0
    """The gateway's estimate, for formats that report it before the true count is known."""
    response_names: ResponseNames | None = None
    """Those of the caller's team, if the call creates a response that its provider may store."""
    is_translated: bool = False
    """The answer is translated chunk by chunk, so each chunk must be exactly one event."""
    cache_marks: Literal["", "beginning", "conversation"] = ""
    """What an adapter marks for the provider's prompt cache when it translates a chat without marks: `beginning` is the
    tools and the system prompt, `conversation` also all messages."""
    reasons: bool = False
    """Whether the model is known to reason, and so takes a reasoning effort."""
    previous_response_id: str | None = None
    """Of a response: the one it continues, which the gateway has already inserted into `body`."""
    is_kept: bool = False
    """Of a response: the gateway stores it, because its backend stores none."""
    content_type: str = JSON
    characters: int = 0
    """Of speech: the number of characters to read aloud."""
    wants_usage: bool = False
    """Of speech: its model is billed by tokens, which its provider reports only in a stream of events."""


def trace_of(call: Call) -> dict[str, str]:
    """The call's trace headers."""
    return {name: value for name, value in call.headers.items() if name in TRACE_HEADERS}


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """One piece of an answer, ready to send. A struct because one is made per token: a frozen dataclass costs 1.5 µs.

    For a stream, `payload` is one whole SSE event in the caller's wire format, `data: ...\\n\\n`, or several that came
    together; it is empty when the caller must not see it (a usage chunk nobody asked for). For a plain answer it is the
    whole body, for speech a piece of it.
    """

    payload: bytes
    has_output: bool = False
    output_characters: int = 0
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: EngineTimings | None = None
    is_done: bool = False
    is_usage_malformed: bool = False
    """A usage was reported that cannot be believed; it counts as missing."""
    usage_so_far: Usage | None = None
    """Reported before the end: its input is final, its output still grows. Counts only if the answer is cut off. A
    charge in it counts only if it `is_estimated`: nothing, for what a cache on the way to the provider had kept."""


class Reply(Protocol):
    """An answer under way. Iterate it once; close it always."""

    @property
    def content_type(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[Chunk]:
        """Yield chunks in order; the last one has `is_done`. Before the first chunk it may raise what `open` may
        (nothing was answered: another backend can be tried); after it, StreamBroken or StreamStalled only."""
        ...

    async def aclose(self) -> None:
        """Stop reading and release the connection; an unfinished upstream answer is cancelled. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class BackendHealth:
    """What a backend reports about itself; hosted backends report only `is_healthy`."""

    is_healthy: bool
    detail: str = ""
    free_slots: int | None = None
    running_requests: int | None = None
    waiting_requests: int | None = None
    queue_seconds: float | None = None


class Backend(Protocol):
    """One configured endpoint."""

    @property
    def name(self) -> str: ...

    @property
    def is_simulated(self) -> bool:
        """True if no model answers: such answers must never be shown as real."""
        ...

    async def open(self, call: Call) -> Reply:
        """Send the call and return once the answer's status is known. Raises any BackendError but StreamBroken."""
        ...

    async def health(self) -> BackendHealth:
        """Ask the backend how it is; never raises."""
        ...

    async def aclose(self) -> None:
        """Close pooled connections."""
        ...


@runtime_checkable
class KeepsResponses(Protocol):
    """A backend whose provider may store its responses (OpenAI's Responses API)."""

    async def stored(self, method: str, path: str) -> bytes | None:
        """The provider's own answer to GET, DELETE or POST of `responses/` + `path`; None if it stores no responses.
        Raises BackendError."""
        ...
