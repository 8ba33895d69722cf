"""A backend that follows a script instead of asking a model: for tests, and for the simulated side of a demonstration.

The contract suite describes upstream behaviour by these outcomes, so the same suite drives this backend in memory and
the real adapters through a scripted server.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from backends.errors import (
    BackendError,
    ConnectFailed,
    RateLimited,
    StreamBroken,
    StreamStalled,
    UnreadableAnswer,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from backends.formats.chat_chunks import usage_wire
from backends.formats.openai import DONE, error_body, event_bytes
from backends.protocol import BackendHealth, Call, Chunk, Reply
from backends.usage import Usage

Fault = Literal[
    "rate_limited",  # 429
    "unavailable",  # 500
    "overloaded",  # 529
    "rejected",  # 400
    "auth",  # 401
    "unreachable",  # nothing listens
    "silent",  # accepts the request and never answers
    "reset",  # the connection is cut, after `fault_after_pieces` pieces
    "truncated",  # the answer ends cleanly, but before it is complete
    "stalled",  # the connection stays open and nothing more comes
    "error_event",  # an error inside the answer
    "garbage",  # something that is not the wire format
]
REFUSALS: Final[frozenset[str]] = frozenset(
    {"rate_limited", "unavailable", "overloaded", "rejected", "auth", "unreachable", "silent"}
)
"""Faults instead of an answer; the others occur after `fault_after_pieces` pieces of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happens to one call. `pieces` are the text as it streams; `usage` None means that none is reported.

    `logprobs` are those of a whole answer's tokens, sent if the caller asks for them.
    """

    pieces: tuple[str, ...] = ("Hello", ", ", "world", ".")
    finish_reason: str = "stop"
    usage: Usage | None = Usage(input_tokens=12, output_tokens=4)  # noqa: RUF009 (frozen)
    fault: Fault | None = None
    fault_after_pieces: int = 0
    retry_after_seconds: float | None = None
    first_piece_delay_seconds: float = 0.0
    piece_delay_seconds: float = 0.0
    logprobs: tuple[float, ...] = ()


Script = Callable[[Call], Outcome]


def follow(outcomes: Iterable[Outcome]) -> Script:
    """One outcome per call, in order; the last one is repeated."""
    script = list(outcomes)
    if not script:
        raise ValueError("a script needs at least one outcome")
    position = iter(range(len(script) - 1))

    def next_outcome(call: Call) -> Outcome:
        del call
        return script[next(position, len(script) - 1)]

    return next_outcome


class ScriptedBackend:
    """`script` decides each call's outcome; `sleep` takes seconds. Calls are recorded in `calls` if `keeps_calls`."""

    is_simulated = True

    def __init__(
        self,
        name: str,
        script: Script,
        *,
        keeps_calls: bool = False,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._name = name
        self._script = script
        self._keeps_calls = keeps_calls
        self._sleep = sleep
        self.calls: list[Call] = []
        self.open_replies = 0

    @property
    def name(self) -> str:
        return self._name

    async def open(self, call: Call) -> Reply:
        if self._keeps_calls:
            self.calls.append(call)
        outcome = self._script(call)
        if outcome.fault in REFUSALS:
            raise await self._refusal(outcome, call)
        self.open_replies += 1
        return _ScriptedReply(self, call, outcome, self._sleep)

    async def health(self) -> BackendHealth:
        return BackendHealth(True)

    async def aclose(self) -> None:
        return None

    async def _refusal(self, outcome: Outcome, call: Call) -> BackendError:
        name = self._name
        if outcome.fault == "silent":
            await self._sleep(call.timeouts.first_byte_seconds)
        refusals: dict[str, BackendError] = {
            "rate_limited": RateLimited(f"{name} answered 429", retry_after_seconds=outcome.retry_after_seconds),
            "unavailable": UpstreamUnavailable(f"{name} answered 500", status=500),
            "overloaded": UpstreamUnavailable(
                f"{name} answered 529", status=529, retry_after_seconds=outcome.retry_after_seconds
            ),
            "rejected": UpstreamRejected(
                f"{name} answered 400", body=error_body("scripted refusal", kind="invalid_request_error")
            ),
            "auth": UpstreamAuth(f"{name} answered 401", status=401),
            "unreachable": ConnectFailed(f"{name} is unreachable"),
            "silent": UpstreamTimeout(f"{name} sent nothing for too long"),
        }
        return refusals[outcome.fault or ""]


class _ScriptedReply:
    def __init__(
        self, backend: ScriptedBackend, call: Call, outcome: Outcome, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._backend = backend
        self._call = call
        self._outcome = outcome
        self._sleep = sleep
        self._is_closed = False

    @property
    def content_type(self) -> str:
        return "text/event-stream" if self._call.is_stream else "application/json"

    async def __aiter__(self) -> AsyncGenerator[Chunk]:
        outcome = self._outcome
        pieces = outcome.pieces if outcome.fault is None else outcome.pieces[: outcome.fault_after_pieces]
        for number, piece in enumerate(pieces):
            await self._sleep(outcome.piece_delay_seconds if number else outcome.first_piece_delay_seconds)
            if self._call.is_stream:
                payload = event_bytes(self._event({"index": 0, "delta": {"content": piece}, "finish_reason": None}))
                yield Chunk(payload, has_output=True, output_characters=len(piece))
        if outcome.fault is not None:
            raise await self._break(outcome.fault, is_started=bool(pieces) and self._call.is_stream)
        if not self._call.is_stream:
            yield self._answer()
            return
        last = self._event({"index": 0, "delta": {}, "finish_reason": outcome.finish_reason})
        yield Chunk(event_bytes(last), finish_reason=outcome.finish_reason)
        if outcome.usage is not None:
            event = event_bytes(self._event(None)) if self._call.wants_usage_chunk else b""
            yield Chunk(event, usage=outcome.usage)
        yield Chunk(DONE, is_done=True)

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._backend.open_replies -= 1

    async def _break(self, fault: Fault, *, is_started: bool) -> BackendError:
        name = self._backend.name
        if fault == "stalled":
            await self._sleep(self._call.timeouts.idle_seconds)
            kind = StreamStalled if is_started else UpstreamTimeout
            return kind(f"{name} sent nothing for too long")
        message = f"{name} broke off its answer ({fault})"
        if is_started:
            return StreamBroken(message)
        kind = UpstreamUnavailable if fault == "error_event" else UnreadableAnswer
        return kind(message)

    def _answer(self) -> Chunk:
        outcome = self._outcome
        text = "".join(outcome.pieces)
        message = {"role": "assistant", "content": text}
        choice: dict[str, object] = {"index": 0, "message": message, "finish_reason": outcome.finish_reason}
        if outcome.logprobs and msgspec.json.decode(self._call.body).get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "x", "logprob": one} for one in outcome.logprobs]}
        return Chunk(
            msgspec.json.encode(self._document("chat.completion", [choice], outcome.usage)),
            has_output=bool(text),
            output_characters=len(text),
            finish_reason=outcome.finish_reason,
            usage=outcome.usage,
            is_done=True,
        )

    def _event(self, choice: dict[str, object] | None) -> bytes:
        usage = self._outcome.usage if choice is None else None
        choices: list[dict[str, object]] = [choice] if choice else []
        return msgspec.json.encode(self._document("chat.completion.chunk", choices, usage))

    def _document(self, kind: str, choices: list[dict[str, object]], usage: Usage | None) -> dict[str, object]:
        document: dict[str, object] = {
            "id": f"scripted-{self._call.request_id}",
            "object": kind,
            "created": 0,
            "model": self._call.upstream_model,
            "choices": choices,
        }
        return document | ({"usage": usage_wire(usage)} if usage else {})
