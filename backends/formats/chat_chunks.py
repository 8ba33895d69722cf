"""Writes OpenAI's chat answers, chunk by chunk or whole, for adapters whose upstream speaks another format. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from backends.formats.openai import DONE, event_bytes
from backends.formats.past_thinking import DETAILS
from backends.protocol import Chunk
from backends.usage import Usage

Delta = dict[str, object]


@dataclass(frozen=True, slots=True)
class Head:
    """What every chunk of one answer repeats. `created` is Unix seconds."""

    answer_id: str
    model: str
    created: int
    service_tier: str | None = None


def usage_wire(usage: Usage) -> dict[str, object]:
    """Our usage in OpenAI's format. It has no field for cache writes; OpenRouter's `cache_write_tokens` is used."""
    into: dict[str, object] = {"cached_tokens": usage.cached_input_tokens}
    if usage.cache_write_5m_tokens or usage.cache_write_1h_tokens:
        into["cache_write_tokens"] = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": into,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def delta_chunk(head: Head, delta: Delta, characters: int = 0, *, has_output: bool = False) -> Chunk:
    """One piece of a streamed answer."""
    payload = _event(head, [{"index": 0, "delta": delta, "finish_reason": None}])
    return Chunk(payload, has_output=has_output or characters > 0, output_characters=characters)


def role_chunk(head: Head) -> Chunk:
    return delta_chunk(head, {"role": "assistant", "content": ""})


def text_chunk(head: Head, text: str, logprobs: Sequence[object] = ()) -> Chunk:
    """`logprobs` are those of the text's tokens."""
    if not logprobs:
        return delta_chunk(head, {"content": text}, len(text))
    choice: Delta = {"index": 0, "delta": {"content": text}, "logprobs": _logprobs(logprobs), "finish_reason": None}
    return Chunk(_event(head, [choice]), has_output=True, output_characters=len(text))


def refusal_chunk(head: Head, text: str) -> Chunk:
    return delta_chunk(head, {"refusal": text}, len(text))


def details_chunk(head: Head, detail: Delta) -> Chunk:
    """Encrypted reasoning."""
    return delta_chunk(head, {DETAILS: [detail]})


def reasoning_chunk(head: Head, text: str) -> Chunk:
    """Uses `reasoning_content`, the name that DeepSeek, vLLM and most clients use."""
    return delta_chunk(head, {"reasoning_content": text}, len(text))


def tool_start_chunk(head: Head, index: int, call_id: str, name: str, arguments: str = "") -> Chunk:
    function = {"name": name, "arguments": arguments}
    call: Delta = {"index": index, "id": call_id, "type": "function", "function": function}
    return delta_chunk(head, {"tool_calls": [call]}, len(name) + len(arguments), has_output=True)


def tool_arguments_chunk(head: Head, index: int, arguments: str) -> Chunk:
    call: Delta = {"index": index, "function": {"arguments": arguments}}
    return delta_chunk(head, {"tool_calls": [call]}, len(arguments))


def custom_start_chunk(head: Head, index: int, call_id: str, name: str) -> Chunk:
    call: Delta = {"index": index, "id": call_id, "type": "custom", "custom": {"name": name, "input": ""}}
    return delta_chunk(head, {"tool_calls": [call]}, len(name), has_output=True)


def custom_input_chunk(head: Head, index: int, said: str) -> Chunk:
    call: Delta = {"index": index, "custom": {"input": said}}
    return delta_chunk(head, {"tool_calls": [call]}, len(said))


def finish_chunk(head: Head, reason: str) -> Chunk:
    payload = _event(head, [{"index": 0, "delta": {}, "finish_reason": reason}])
    return Chunk(payload, finish_reason=reason)


def usage_chunk(head: Head, usage: Usage | None, *, is_shown: bool, is_malformed: bool) -> Chunk:
    """The chunk that carries the usage to the books, and to the caller if `is_shown`."""
    payload = _event(head, [], usage) if is_shown and usage else b""
    return Chunk(payload, usage=usage, is_usage_malformed=is_malformed)


def done_chunk() -> Chunk:
    return Chunk(DONE, is_done=True)


@dataclass(slots=True)
class Answer:
    """A whole answer under construction."""

    head: Head
    text: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    tool_calls: list[Delta] = field(default_factory=list[Delta])
    refusal: list[str] = field(default_factory=list[str])
    details: list[Delta] = field(default_factory=list[Delta])
    logprobs: list[object] = field(default_factory=list[object])
    finish_reason: str = "stop"
    usage: Usage | None = None
    is_usage_malformed: bool = False

    def add_tool_call(self, call_id: str, name: str, arguments: str) -> None:
        function = {"name": name, "arguments": arguments}
        self.tool_calls.append({"id": call_id, "type": "function", "function": function})

    def add_custom_call(self, call_id: str, name: str, said: str) -> None:
        self.tool_calls.append({"id": call_id, "type": "custom", "custom": {"name": name, "input": said}})

    def chunk(self) -> Chunk:
        """The single chunk of the answer."""
        text, reasoning, refusal = "".join(self.text), "".join(self.reasoning), "".join(self.refusal)
        message: Delta = {
            "role": "assistant",
            "content": text if text or not (self.tool_calls or refusal) else None,
            "refusal": refusal or None,
        }
        if reasoning:
            message["reasoning_content"] = reasoning
        if self.details:
            message[DETAILS] = self.details
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        document: Delta = _document(self.head, "chat.completion") | {
            "service_tier": self.head.service_tier,  # litellm as Groq's client reads no answer without it
            "system_fingerprint": None,  # nor does OpenRouter's for JavaScript without this
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": _logprobs(self.logprobs) if self.logprobs else None,
                    "finish_reason": self.finish_reason,
                }
            ],
        }
        if self.usage is not None:
            document["usage"] = usage_wire(self.usage)
        return Chunk(
            msgspec.json.encode(document),
            has_output=bool(text or reasoning or refusal or self.tool_calls),
            output_characters=len(text) + len(reasoning) + len(refusal) + _characters(self.tool_calls),
            finish_reason=self.finish_reason,
            usage=self.usage,
            is_done=True,
            is_usage_malformed=self.is_usage_malformed,
        )


def _characters(calls: list[Delta]) -> int:
    called = [call.get("function") or call.get("custom") for call in calls]
    return sum(len(str(part)) for one in called if isinstance(one, dict) for part in one.values())


def _logprobs(tokens: Sequence[object]) -> Delta:
    return {"content": tokens, "refusal": None}


def _event(head: Head, choices: list[Delta], usage: Usage | None = None) -> bytes:
    document = _document(head, "chat.completion.chunk") | {"choices": choices}
    if usage is not None:
        document["usage"] = usage_wire(usage)
    return event_bytes(msgspec.json.encode(document))


def _document(head: Head, kind: str) -> Delta:
    tier: Delta = {} if head.service_tier is None else {"service_tier": head.service_tier}
    return {"id": head.answer_id, "object": kind, "created": head.created, "model": head.model, **tier}
