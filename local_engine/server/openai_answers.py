"""OpenAI's wire format for answers: bodies, stream chunks, usage and errors as JSON values."""

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_engine.engine_core import Delta
from local_engine.errors import EngineDraining, EngineError, InvalidRequest, StepFailed
from local_engine.metrics import AnswerTimings, answer_timings
from local_engine.request import Request
from local_engine.sampling.logprobs import TokenLogprobs
from local_engine.server.logprob_answers import Kind, LogprobWire
from local_engine.text.thinking import Thinking
from local_engine.text.tokenizer import Tokenizer
from local_engine.text.tool_calls import CallBegins, Piece, ToolCallParser


@dataclass
class AnswerWire:
    """Writes one request's answers in its endpoint's format."""

    kind: Kind
    model: str
    tokenizer: Tokenizer
    thinking: Thinking | None = None
    _head: dict[str, Any] = field(init=False)
    """The first fields of a body."""
    _chunk_head: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        prefix, name = ("chatcmpl-", "chat.completion") if self.kind == "chat" else ("cmpl-", "text_completion")
        made = {"id": prefix + uuid.uuid4().hex, "object": name, "created": int(time.time()), "model": self.model}
        self._head = made
        self._chunk_head = made | {"object": "chat.completion.chunk"} if self.kind == "chat" else made

    def chunk(
        self, choice: int, delta: dict[str, Any], logprobs: Any = None, ending: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """One stream chunk with one choice; `delta` is chat's delta, or {"content": ...}; `ending` is from
        `ending_of`."""
        said = {"delta": delta} if self.kind == "chat" else {"text": delta.get("content", "")}
        entry = {"index": choice, "logprobs": logprobs, **(ending or {"finish_reason": None}), **said}
        return {**self._chunk_head, "choices": [entry]}

    def logprobs(self, *, at: int, shows_special: bool, by_id: bool) -> LogprobWire:
        """For one answer, which begins after `at` characters of its choice's text."""
        return LogprobWire(self.kind, self.tokenizer, at=at, shows_special=shows_special, by_id=by_id)

    def tell_prompt(self, body: dict[str, Any], ids: list[list[int]]) -> None:
        """Adds the prompts' ids where vLLM has them: for chats beside the choices, for completions inside them."""
        for told, one in zip([body] if self.kind == "chat" else body["choices"], ids, strict=False):
            told["prompt_token_ids"] = one

    def usage_chunk(self, requests: list[Request], now: float, per_prompt: int) -> dict[str, Any]:
        """The last chunk of a stream that requested usage."""
        return {**self._chunk_head, "choices": []} | self._accounts(requests, now, per_prompt)

    def body(
        self, choices: list[dict[str, Any]], requests: list[Request], now: float, per_prompt: int
    ) -> dict[str, Any]:
        """The complete answer of a request that is not streamed."""
        return {**self._head, "choices": choices} | self._accounts(requests, now, per_prompt)

    def _accounts(self, requests: list[Request], now: float, per_prompt: int) -> dict[str, Any]:
        told = accounts(requests, now, per_prompt)
        if self.thinking is not None:
            thought = sum(self.thinking.tokens_of(request.output_token_ids, self.tokenizer) for request in requests)
            told["usage"]["completion_tokens_details"] = {"reasoning_tokens": thought}
        return told


def ending_of(finish: str, stop_string: str | None) -> dict[str, Any]:
    """A choice's fields about its end. `stop_reason` is vLLM's: the stop string that ended it, if any."""
    return {"finish_reason": finish, "stop_reason": stop_string}


def error_of(delta: Delta) -> EngineError | None:
    """Why an answer ended in an error, if it did: a fault of the engine, its shutdown, or a fault of the request."""
    if delta.error is None:
        return None
    if delta.is_abandoned:
        return EngineDraining(delta.error)
    return (
        StepFailed(delta.error) if delta.parameter is None else InvalidRequest(delta.error, parameter=delta.parameter)
    )


@dataclass
class Collected:
    """One choice of an answer that is not streamed, collected from its deltas."""

    request: Request | None = None
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprobs] = field(default_factory=list[TokenLogprobs])
    finish_reason: str | None = None
    error: EngineError | None = None
    stop_string: str | None = None

    def add(self, delta: Delta) -> None:
        self.request = delta.request
        self.text += delta.text
        self.token_ids += delta.token_ids
        self.logprobs += delta.logprobs
        self.finish_reason = delta.finish_reason
        self.error = error_of(delta)
        self.stop_string = delta.stop_string


class ToolSplit:
    """Separates an answer's tool calls from its text: deltas as OpenAI streams them, in order."""

    def __init__(self, tools: Mapping[str, Any], *, most_calls: int | None = None, takes_unmarked: bool = True) -> None:
        """`tools` are the callable tools with their parameter schemas."""
        self._parser = ToolCallParser(tools.keys(), tools, takes_unmarked=takes_unmarked)
        self._most_calls = most_calls
        self._begun = 0
        self._is_whole = True

    def push(self, text: str, *, is_last: bool) -> list[dict[str, Any]]:
        """What has become certain: text, a call's name, more of its arguments."""
        pieces = self._parser.push(text) + (self._parser.finish() if is_last else [])
        return [delta for piece in pieces if (delta := self._delta(piece)) is not None]

    def finish_of(self, finish: str) -> str:
        """The finish reason: calls, unless the last one is incomplete."""
        return "tool_calls" if finish == "stop" and self._begun and self._is_whole else finish

    def _delta(self, piece: Piece) -> dict[str, Any] | None:
        if isinstance(piece, str):
            return {"content": piece}
        self._begun += isinstance(piece, CallBegins)
        if self._most_calls is not None and self._begun > self._most_calls:
            return None
        index = self._begun - 1
        if isinstance(piece, CallBegins):
            self._is_whole = False
            return {"tool_calls": [{"index": index} | _call_wire(piece)]}
        self._is_whole = piece.ends
        return {"tool_calls": [{"index": index, "function": {"arguments": piece.text}}]} if piece.text else None


def _call_wire(call: CallBegins) -> dict[str, Any]:
    number = uuid.uuid4().hex
    return {
        "id": number[:9] if call.has_short_id else "call_" + number[:24],
        "type": "function",
        "function": {"name": call.name, "arguments": ""},
    }


def whole_calls(deltas: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    """The combined text and calls of all of an answer's deltas."""
    calls: list[dict[str, Any]] = []
    for piece in (piece for delta in deltas for piece in delta.get("tool_calls", ())):
        if "id" in piece:
            calls.append({name: value for name, value in piece.items() if name != "index"})
        else:
            calls[-1]["function"]["arguments"] += piece["function"]["arguments"]
    return "".join(delta.get("content", "") for delta in deltas), calls


def accounts(requests: list[Request], now: float, per_prompt: int) -> dict[str, Any]:
    """`usage` and, beside it, figures for accounting; all answers are added up, each prompt counted once."""
    firsts = requests[::per_prompt]
    prompt_tokens = sum(request.prompt_tokens for request in firsts)
    output_tokens = sum(request.output_tokens for request in requests)
    timings = [answer_timings(request, now) for request in requests]
    return {
        "usage": usage(prompt_tokens, output_tokens)
        | {"prompt_tokens_details": {"cached_tokens": sum(request.cached_prompt_tokens or 0 for request in firsts)}},
        "x_breakeven": {
            "gpu_seconds": sum(timing.device_seconds for timing in timings),
            "queue_seconds": timings[0].queue_seconds,
            "time_to_first_token_seconds": timings[0].time_to_first_token_seconds,
            "prefill_tokens_per_second": timings[0].prefill_tokens_per_second,
            "decode_tokens_per_second": timings[0].decode_tokens_per_second,
            "mean_batch_size": mean_batch_size(timings),
        },
    }


def usage(prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Token counts in OpenAI's format."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
    }


def mean_batch_size(timings: list[AnswerTimings]) -> float | None:
    """Mean over the choices that ran."""
    sizes = [timing.mean_batch_size for timing in timings if timing.mean_batch_size is not None]
    return sum(sizes) / len(sizes) if sizes else None


def error_event(error: EngineError) -> dict[str, Any]:
    """An error inside a stream that has begun."""
    if isinstance(error, InvalidRequest):
        return error_body(str(error), kind="invalid_request_error", parameter=error.parameter)
    return error_body(str(error), kind="server_error", code="engine_error")


def error_body(message: str, *, kind: str, parameter: str | None = None, code: str | None = None) -> dict[str, Any]:
    """OpenAI's error format."""
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}
