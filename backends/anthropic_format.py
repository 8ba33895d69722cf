"""Anthropic's Messages format as values: an OpenAI chat body into it, its answers and events back. No IO, no clock.

What cannot be said in either direction is listed in docs/backends.md and held there by a test.
"""

from collections.abc import Mapping
from typing import Final, cast

import msgspec

from backends.chat_chunks import (
    Answer,
    Head,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    role_chunk,
    text_chunk,
    tool_arguments_chunk,
    tool_start_chunk,
    usage_chunk,
)
from backends.chat_view import (
    ChatView,
    Media,
    Part,
    Text,
    ToolCall,
    ToolResult,
    untranslatable,
)
from backends.errors import StreamBroken, UpstreamUnavailable
from backends.http_errors import error_from_event
from backends.json_objects import Fields, decode_object, number, part_of, text_of
from backends.openai_format import error_body
from backends.protocol import Call, Chunk
from backends.usage import Usage
from backends.usage_wire import MalformedUsage, checked, token_count

DEFAULT_MAX_TOKENS: Final = 8192
"""Anthropic demands a limit; this one is sent when the caller gave none."""

FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_EFFORTS: Final[Mapping[str, str]] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_SERVICE_TIERS: Final[Mapping[str, str]] = {"auto": "auto", "default": "standard_only"}
_JSON_ONLY: Final = "Answer with one JSON object and nothing else."


def build_messages_body(view: ChatView, call: Call) -> bytes:
    """The request in Anthropic's words. Raises UpstreamRejected where it cannot be said."""
    body: Fields = {
        "model": call.upstream_model,
        "max_tokens": view.max_output_tokens or DEFAULT_MAX_TOKENS,
        "messages": _messages(view),
    }
    system = [_block(part) for turn in view.turns if turn.role == "system" for part in turn.parts]
    if view.wants_json and view.json_schema is None:
        system.append({"type": "text", "text": _JSON_ONLY})
    optional: Fields = {
        "system": system,
        "tools": [_tool(tool.name, tool.description, tool.parameters, tool.is_strict) for tool in view.tools],
        "tool_choice": _tool_choice(view),
        "stop_sequences": list(view.stop),
        "output_config": _output_config(view),
        "metadata": {"user_id": user} if (user := text_of(view.fields, "user")) else None,
        "service_tier": _SERVICE_TIERS.get(text_of(view.fields, "service_tier") or ""),
        "cache_control": view.fields.get("cache_control"),
        "thinking": view.fields.get("thinking"),
        "stream": call.is_stream,
    }
    body |= {name: value for name, value in optional.items() if value}
    temperature, top_p = number(view.fields, "temperature"), number(view.fields, "top_p")
    if temperature is not None:
        body["temperature"] = min(temperature, 1)  # Anthropic's scale ends at 1, OpenAI's at 2
    if top_p is not None:
        body["top_p"] = top_p
    return msgspec.json.encode(body)


def _messages(view: ChatView) -> list[Fields]:
    messages: list[Fields] = []
    for turn in view.turns:
        if turn.role == "system":
            continue
        blocks = [_block(part) for part in turn.parts]
        if messages and messages[-1]["role"] == turn.role:
            cast(list[Fields], messages[-1]["content"]).extend(blocks)
        elif blocks:
            messages.append({"role": turn.role, "content": blocks})
    if not messages:
        raise untranslatable("messages", "needs at least one user message")
    return messages


def _block(part: Part) -> Fields:
    if isinstance(part, Text):
        return _cached({"type": "text", "text": part.text}, part.cache_control)
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.call_id, "name": part.name, "input": part.arguments}
    if isinstance(part, ToolResult):
        return {"type": "tool_result", "tool_use_id": part.call_id, "content": [_block(item) for item in part.parts]}
    if part.kind == "audio":
        raise untranslatable("messages", "this model cannot hear audio")
    block: Fields = {"type": part.kind, "source": _source(part)}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return _cached(block, part.cache_control)


def _source(media: Media) -> Fields:
    if media.url is not None:
        return {"type": "url", "url": media.url}
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _cached(block: Fields, cache_control: Fields | None) -> Fields:
    return block | {"cache_control": cache_control} if cache_control else block


def _tool(name: str, description: str | None, schema: Fields, is_strict: bool) -> Fields:
    tool: Fields = {"name": name, "input_schema": schema}
    return tool | ({"description": description} if description else {}) | ({"strict": True} if is_strict else {})


def _tool_choice(view: ChatView) -> Fields | None:
    choice = view.tool_choice
    if isinstance(choice, tuple):
        said: Fields = {"type": "tool", "name": choice[1]}
    elif choice is not None:
        said = {"type": {"auto": "auto", "none": "none", "required": "any"}[choice]}
    elif view.parallel_tool_calls is False and view.tools:
        said = {"type": "auto"}
    else:
        return None
    if view.parallel_tool_calls is False and said["type"] != "none":
        said["disable_parallel_tool_use"] = True
    return said


def _output_config(view: ChatView) -> Fields:
    config: Fields = {}
    if view.json_schema is not None:
        config["format"] = {"type": "json_schema", "schema": view.json_schema}
    effort = _EFFORTS.get(text_of(view.fields, "reasoning_effort") or "")
    return config | ({"effort": effort} if effort else {})


def parse_messages_usage(wire: object) -> Usage:
    """Anthropic's usage, whose `input_tokens` leaves cached tokens out, in our classes. Raises MalformedUsage."""
    if not isinstance(wire, Mapping):
        raise MalformedUsage("usage is not an object")
    usage = cast(Mapping[str, object], wire)
    if usage.get("input_tokens") is None or usage.get("output_tokens") is None:
        raise MalformedUsage("input_tokens or output_tokens is missing")
    read = token_count(usage.get("cache_read_input_tokens"), "cache_read_input_tokens")
    written = token_count(usage.get("cache_creation_input_tokens"), "cache_creation_input_tokens")
    split = part_of(usage, "cache_creation")
    hour = token_count(split.get("ephemeral_1h_input_tokens"), "ephemeral_1h_input_tokens")
    if hour > written:
        raise MalformedUsage("more tokens cached for an hour than cached at all")
    tier = usage.get("service_tier")
    return checked(
        Usage(
            input_tokens=token_count(usage["input_tokens"], "input_tokens") + read + written,
            cached_input_tokens=read,
            cache_write_5m_tokens=written - hour,
            cache_write_1h_tokens=hour,
            output_tokens=token_count(usage["output_tokens"], "output_tokens"),
            reasoning_tokens=token_count(
                part_of(usage, "output_tokens_details").get("thinking_tokens"), "thinking_tokens"
            ),
            service_tier=tier if isinstance(tier, str) else None,
        )
    )


def believable_usage(wire: object) -> tuple[Usage | None, bool]:
    """(usage, whether one came that cannot be believed)."""
    if wire is None:
        return None, False
    try:
        return parse_messages_usage(wire), False
    except MalformedUsage:
        return None, True


def openai_error(body: bytes) -> bytes:
    """Anthropic's error body in OpenAI's shape."""
    error = part_of(decode_object(body) or {}, "error")
    message, kind = error.get("message"), error.get("type")
    return error_body(
        message if isinstance(message, str) else "the provider refused the request",
        kind=kind if isinstance(kind, str) else "invalid_request_error",
    )


def read_message(body: bytes, *, backend: str, created: int) -> Chunk:
    """A whole message as a plain chat answer. Raises UpstreamUnavailable when it is none."""
    document = decode_object(body)
    if document is None or document.get("type") == "error" or not isinstance(document.get("content"), list):
        error = document.get("error") if document is not None else None
        raise error_from_event(error, backend=backend, is_started=False)
    answer = Answer(Head(str(document.get("id")), str(document.get("model")), created))
    for item in cast(list[object], document["content"]):
        block = cast(Fields, item) if isinstance(item, dict) else {}
        kind = block.get("type")
        if kind == "text":
            answer.text.append(text_of(block, "text") or "")
        elif kind == "thinking":
            answer.reasoning.append(text_of(block, "thinking") or "")
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            answer.add_tool_call(str(block.get("id")), str(block.get("name")), arguments)
    answer.finish_reason = FINISH_REASONS.get(str(document.get("stop_reason")), "stop")
    answer.usage, answer.is_usage_malformed = believable_usage(document.get("usage"))
    return answer.chunk()


class AnthropicStreamReader:
    """One message stream, event by event, as OpenAI chunks."""

    def __init__(self, backend: str, *, wants_usage_chunk: bool, created: int) -> None:
        self._backend = backend
        self._wants_usage = wants_usage_chunk
        self._created = created
        self._head = Head("", "", created)
        self._usage: Fields = {}
        self._has_usage = False
        self._tools: dict[int, int] = {}  # content block index -> tool call index
        self.is_started = False
        self.is_done = False

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        if event is None:
            raise self._broken("sent an event that is not JSON")
        kind = event.get("type")
        if kind == "error":
            raise error_from_event(event.get("error"), backend=self._backend, is_started=self.is_started)
        chunks = self._chunks(cast(str, kind), event)
        self.is_started = self.is_started or bool(chunks)
        return chunks

    def end(self) -> list[Chunk]:
        raise self._broken("ended its stream before the answer was complete")

    def _chunks(self, kind: str, event: Fields) -> list[Chunk]:
        if kind == "content_block_delta":
            return self._delta(event, part_of(event, "delta"))
        if kind == "message_start":
            message = part_of(event, "message")
            self._head = Head(str(message.get("id")), str(message.get("model")), self._created)
            self._note_usage(message.get("usage"))
            return [role_chunk(self._head)]
        if kind == "content_block_start":
            return self._block_start(event, part_of(event, "content_block"))
        if kind == "message_delta":
            self._note_usage(event.get("usage"))
            reason = part_of(event, "delta").get("stop_reason")
            return [finish_chunk(self._head, FINISH_REASONS.get(str(reason), "stop"))] if reason else []
        if kind == "message_stop" and self.is_started:
            self.is_done = True
            return [*self._final_usage(), done_chunk()]
        return []  # ping, content_block_stop, and kinds to come

    def _block_start(self, event: Fields, block: Mapping[str, object]) -> list[Chunk]:
        if block.get("type") == "tool_use":
            index = self._tools.setdefault(_block_index(event), len(self._tools))
            return [tool_start_chunk(self._head, index, str(block.get("id")), str(block.get("name")))]
        text = block.get("text")
        return [text_chunk(self._head, text)] if isinstance(text, str) and text else []

    def _delta(self, event: Fields, delta: Mapping[str, object]) -> list[Chunk]:
        text, thinking, arguments = delta.get("text"), delta.get("thinking"), delta.get("partial_json")
        if isinstance(text, str) and text:
            return [text_chunk(self._head, text)]
        if isinstance(thinking, str) and thinking:
            return [reasoning_chunk(self._head, thinking)]
        index = _block_index(event)
        if isinstance(arguments, str) and arguments and index in self._tools:
            return [tool_arguments_chunk(self._head, self._tools[index], arguments)]
        return []  # signatures and citations have no place in OpenAI's format

    def _note_usage(self, wire: object) -> None:
        """Later figures are cumulative and replace earlier ones; the last event leaves some out."""
        if isinstance(wire, Mapping):
            self._has_usage = True
            known = cast(Mapping[str, object], wire)
            self._usage |= {name: value for name, value in known.items() if value is not None}

    def _final_usage(self) -> list[Chunk]:
        if not self._has_usage:
            return []
        usage, is_malformed = believable_usage(self._usage)
        return [usage_chunk(self._head, usage, is_shown=self._wants_usage, is_malformed=is_malformed)]

    def _broken(self, what: str) -> StreamBroken | UpstreamUnavailable:
        kind = StreamBroken if self.is_started else UpstreamUnavailable
        return kind(f"{self._backend} {what}", backend=self._backend)


def _block_index(event: Fields) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else -1
