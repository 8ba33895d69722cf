"""Translates OpenAI chat bodies to Gemini's generateContent, and its answers and events back. No IO, no clock.

docs/translation.md lists what cannot be translated in either direction; a test checks it.
"""

import mimetypes
from collections.abc import Mapping
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from backends.errors import BackendError, UnreadableAnswer
from backends.formats.chat_chunks import (
    Answer,
    Head,
    delta_chunk,
    done_chunk,
    finish_chunk,
    reasoning_chunk,
    role_chunk,
    text_chunk,
    usage_chunk,
)
from backends.formats.chat_fields import untranslatable
from backends.formats.chat_view import ChatView, Media, Part, Text, ToolCall, ToolResult
from backends.formats.json_objects import Fields, decode_object, first_of, number, objects_of, part_of, text_of
from backends.formats.openai import error_body
from backends.formats.past_thinking import UNKNOWN_SIGNATURE
from backends.formats.sampling import gemini_thinking
from backends.formats.tool_turns import OPENING
from backends.formats.usage_wire import MalformedUsage, believable, checked, token_count
from backends.http.errors import TOO_LONG, error_from_event, is_too_long, no_answer, said_too_long
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk
from backends.usage import Usage

FINISH_REASONS: Final[Mapping[str, str]] = {"STOP": "stop", "MAX_TOKENS": "length"}
"""Any other reason means the answer was cut off: various filters, and future reasons."""
_GIVEN_UP: Final = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL"})
"""What the model wrote is no call, and not told: another try, or another model, may do better."""

_NUMBERS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "topP",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "seed": "seed",
}
_AT_LIST_PRICE: Final = frozenset({"", "unspecified", "traffic_type_unspecified", "provisioned_throughput"})
_MODES: Final[Mapping[str, str]] = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def build_content_body(view: ChatView, model: str) -> bytes:
    """The request to `model` in Gemini's format; its name and streaming are part of the URL."""
    said = [part for turn in view.turns if turn.role == "system" for part in turn.parts]
    system = [{"text": part.text} for part in said if isinstance(part, Text)]
    declarations = [
        {"name": tool.name, "parametersJsonSchema": tool.parameters}
        | ({"description": tool.description} if tool.description else {})
        for tool in view.tools
    ]
    optional: Fields = {
        "systemInstruction": {"parts": system} if system else None,
        "tools": [{"functionDeclarations": declarations}] if declarations else None,
        "toolConfig": _tool_config(view),
        "generationConfig": _generation_config(view, model),
        "safetySettings": view.fields.get("safety_settings"),
        "cachedContent": view.fields.get("cached_content"),
    }
    body: Fields = {"contents": _contents(view)}
    return msgspec.json.encode(body | {name: value for name, value in optional.items() if value})


def _contents(view: ChatView) -> list[Fields]:
    names = {part.call_id: part.name for turn in view.turns for part in turn.parts if isinstance(part, ToolCall)}
    contents: list[Fields] = []
    for turn in view.turns:
        if turn.role == "system" or not turn.parts:
            continue
        role = "model" if turn.role == "assistant" else "user"
        parts = [_part(part, names) for part in turn.parts]
        if contents and contents[-1]["role"] == role:
            cast(list[Fields], contents[-1]["parts"]).extend(parts)
        else:
            contents.append({"role": role, "parts": parts})
    if not contents:
        raise untranslatable("messages", "needs at least one user message")
    calls = any("functionCall" in part for part in objects_of(contents[0]["parts"]))
    return [{"role": "user", "parts": [{"text": OPENING}]}, *contents] if calls else contents


def _part(part: Part, names: Mapping[str, str]) -> Fields:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, ToolCall):
        call: Fields = {"functionCall": {"id": part.call_id, "name": part.name, "args": part.arguments}}
        return call | {"thoughtSignature": part.signature or UNKNOWN_SIGNATURE}
    if isinstance(part, ToolResult):
        response = {"id": part.call_id, "name": names.get(part.call_id, part.call_id), "response": _result(part)}
        return {"functionResponse": response}
    return _media(part)


def _media(media: Media) -> Fields:
    if media.url is None:
        return {"inlineData": {"mimeType": media.media_type, "data": media.data}}
    guessed = mimetypes.guess_type(media.url.partition("?")[0])[0]
    return {"fileData": {"fileUri": media.url, "mimeType": guessed or "image/jpeg"}}


def _result(result: ToolResult) -> Fields:
    """Gemini requires an object: the tool's own if it returned one, else its text under `result`."""
    text = "".join(part.text for part in result.parts if isinstance(part, Text))
    if len(result.parts) != sum(isinstance(part, Text) for part in result.parts):
        raise untranslatable("messages", "a tool's result can only be text for this model")
    return decode_object(text.encode()) or {"result": text}


def _tool_config(view: ChatView) -> Fields | None:
    choice = view.tool_choice
    if choice is None:
        return None
    if isinstance(choice, tuple):
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice[1]]}}
    return {"functionCallingConfig": {"mode": _MODES[choice]}}


def _generation_config(view: ChatView, model: str) -> Fields:
    config: Fields = {
        theirs: value for ours, theirs in _NUMBERS.items() if (value := number(view.fields, ours)) is not None
    }
    if view.max_output_tokens is not None:
        config["maxOutputTokens"] = view.max_output_tokens
    if view.stop:
        config["stopSequences"] = list(view.stop)
    if view.wants_json:
        config["responseMimeType"] = "application/json"
    if view.json_schema is not None:
        config["responseJsonSchema"] = view.json_schema
    if thinking := gemini_thinking(model, text_of(view.fields, "reasoning_effort") or ""):
        config["thinkingConfig"] = thinking
    return config


def parse_content_usage(wire: object) -> Usage:
    """Gemini's `usageMetadata`, which counts thoughts separately from the candidates. Raises MalformedUsage."""
    if not isinstance(wire, Mapping):
        raise MalformedUsage("usageMetadata is not an object")
    usage = cast(Mapping[str, object], wire)
    if usage.get("promptTokenCount") is None:
        raise MalformedUsage("promptTokenCount is missing")

    def count(name: str) -> int:
        return token_count(usage.get(name), name)

    thoughts, cached, prompt = (count(f"{name}TokenCount") for name in ("thoughts", "cachedContent", "prompt"))
    audio = _modality(usage.get("promptTokensDetails"), "AUDIO")
    cached_audio = _modality(usage.get("cacheTokensDetails"), "AUDIO")
    if cached > prompt:  # Vertex leaves it out, at times
        prompt, audio = prompt + cached, audio + cached_audio
    return checked(
        Usage(
            input_tokens=prompt + count("toolUsePromptTokenCount"),
            cached_input_tokens=cached,
            output_tokens=count("candidatesTokenCount") + thoughts,
            reasoning_tokens=thoughts,
            audio_input_tokens=audio,
            cached_audio_tokens=min(cached_audio, audio, cached),
            audio_output_tokens=_modality(usage.get("candidatesTokensDetails"), "AUDIO"),
            image_input_tokens=_modality(usage.get("promptTokensDetails"), "IMAGE"),
            image_output_tokens=_modality(usage.get("candidatesTokensDetails"), "IMAGE"),
            service_tier=tier_that_answered(usage),
        )
    )


def tier_that_answered(usage: Mapping[str, object]) -> str | None:
    """The service tier that answered, which may be a lower one than was asked for. Vertex names it by its traffic."""
    said = (text_of(usage, "serviceTier") or text_of(usage, "trafficType") or "").lower()
    tier = said.removeprefix("service_tier_").removeprefix("on_demand").removeprefix("_")
    return None if tier in _AT_LIST_PRICE else tier


def _modality(details: object, name: str) -> int:
    entries = [entry for entry in objects_of(details) if entry.get("modality") == name]
    return sum(token_count(entry.get("tokenCount"), name) for entry in entries)


def believable_usage(wire: object) -> tuple[Usage | None, bool]:
    return believable(parse_content_usage, wire)


def openai_error(body: bytes) -> bytes:
    """Google's error body in OpenAI's shape."""
    error = part_of(decode_object(body) or {}, "error")
    message = text_of(error, "message") or "the provider refused the request"
    if is_too_long(body):
        return error_body(said_too_long(message), kind="invalid_request_error", code=TOO_LONG)
    status = text_of(error, "status")
    return error_body(message, kind="invalid_request_error", code=status.lower() if status else None)


def not_content(document: Fields, body: bytes, *, backend: str) -> BackendError:
    """The error for a 200 without a finish reason: the provider's own error, or an unreadable answer."""
    if document.get("error") is not None:
        return error_from_event(document["error"], backend=backend, is_started=False)
    usage, _ = believable_usage(document.get("usageMetadata"))
    return no_answer(f"{backend} answered without an end", body, usage=usage)


def read_content(body: bytes, *, backend: str, unnamed: Head, calls_one: bool = False) -> Chunk:
    """A whole answer; if it `calls_one`, without further calls. `unnamed` has what it may leave out: its id and its
    model. Raises BackendError if it is none."""
    document = decode_object(body) or {}
    finish = finish_of(document)
    if finish is None:  # a whole answer says why it ended
        raise not_content(document, body, backend=backend)
    usage, is_malformed = believable_usage(document.get("usageMetadata"))
    if _is_given_up(document):
        raise UnreadableAnswer(f"{backend} gave up its answer", usage=usage)
    answer = Answer(_head(document, unnamed))
    for part in _parts(document):
        text = part.get("text")
        if isinstance(text, str):
            (answer.reasoning if part.get("thought") is True else answer.text).append(text)
        elif isinstance(part.get("functionCall"), dict) and not (calls_one and answer.tool_calls):
            answer.tool_calls.append(_call(part, unnamed.answer_id, len(answer.tool_calls)))
    answer.finish_reason = finish
    answer.usage, answer.is_usage_malformed = usage, is_malformed
    return answer.chunk()


def _head(document: Fields, unnamed: Head) -> Head:
    answer_id = text_of(document, "responseId") or unnamed.answer_id
    return Head(answer_id, text_of(document, "modelVersion") or unnamed.model, unnamed.created)


def _candidate(document: Fields) -> Fields:
    return first_of(document.get("candidates"))


def _parts(document: Fields) -> list[Fields]:
    return objects_of(part_of(_candidate(document), "content").get("parts"))


def has_calls_in(document: Fields) -> bool:
    """Whether the first candidate calls functions."""
    return any(isinstance(part.get("functionCall"), dict) for part in _parts(document))


def _is_given_up(document: Fields) -> bool:
    return _candidate(document).get("finishReason") in _GIVEN_UP


def finish_of(document: Fields, *, has_calls: bool | None = None) -> str | None:
    """The finish reason in OpenAI's format; None if there is none. `has_calls`: whether the whole answer calls
    functions (default: whether this document does)."""
    reason = _candidate(document).get("finishReason")
    if not isinstance(reason, str):
        return "content_filter" if part_of(document, "promptFeedback").get("blockReason") else None
    called = has_calls_in(document) if has_calls is None else has_calls
    return "tool_calls" if called and reason == "STOP" else FINISH_REASONS.get(reason, "content_filter")


def _call(part: Fields, answer_id: str, index: int) -> Fields:
    """An OpenAI tool call. The thought signature is placed as in Google's OpenAI-compatible endpoint."""
    function = part_of(part, "functionCall")
    call: Fields = {
        "id": text_of(function, "id") or f"call_{answer_id}_{index}",
        "type": "function",
        "function": {
            "name": str(function.get("name")),
            "arguments": msgspec.json.encode(function.get("args") or {}).decode(),
        },
    }
    signature = text_of(part, "thoughtSignature")
    return call | ({"extra_content": {"google": {"thought_signature": signature}}} if signature else {})


class GeminiStreamReader(StreamReader):
    """One stream. Each event is a piece of the answer with the usage so far; the stream has no end marker."""

    def __init__(self, backend: str, *, wants_usage_chunk: bool, unnamed: Head, calls_one: bool = False) -> None:
        super().__init__(backend)
        self._wants_usage = wants_usage_chunk
        self._unnamed = self._head = unnamed
        self._usage: object = None
        self._calls_one = calls_one
        self._calls = 0
        self._has_finished = False

    def read(self, data: bytes) -> list[Chunk]:
        event = decode_object(data)
        if event is None:
            raise self._broken("sent an event that is not JSON")
        if event.get("error") is not None:
            raise self._failed(event["error"])
        self._usage = event.get("usageMetadata", self._usage)
        if _is_given_up(event):
            given_up = self._broken("gave up in the middle of the answer")
            given_up.usage, _ = believable_usage(self._usage)
            raise given_up
        if not self.is_started:
            self._head = _head(event, self._unnamed)
        chunks = [chunk for part in _parts(event) for chunk in self._part(part)]
        finish = finish_of(event, has_calls=self._calls > 0)
        if finish is not None and not self._has_finished:
            self._has_finished = True
            chunks.append(finish_chunk(self._head, finish))
        if chunks and not self.is_started:
            self.is_started = True
            chunks.insert(0, role_chunk(self._head))
        chunks = chunks or [Chunk(b"")]  # thoughts that are not told have grown the usage
        chunks[-1] = replace(chunks[-1], usage_so_far=believable_usage(self._usage)[0])
        return chunks

    def end(self) -> list[Chunk]:
        if not self._has_finished:
            return super().end()
        self.is_done = True
        if self._usage is None:
            return [done_chunk()]
        usage, is_malformed = believable_usage(self._usage)
        return [usage_chunk(self._head, usage, is_shown=self._wants_usage, is_malformed=is_malformed), done_chunk()]

    def _part(self, part: Fields) -> list[Chunk]:
        text = part.get("text")
        if isinstance(text, str):
            if not text:
                return []
            return [reasoning_chunk(self._head, text) if part.get("thought") is True else text_chunk(self._head, text)]
        if not isinstance(part.get("functionCall"), dict) or (self._calls_one and self._calls):
            return []
        call = _call(part, self._unnamed.answer_id, self._calls) | {"index": self._calls}
        self._calls += 1
        function = cast(Mapping[str, str], call["function"])
        characters = len(function["name"]) + len(function["arguments"])
        return [delta_chunk(self._head, {"tool_calls": [call]}, characters, has_output=True)]
