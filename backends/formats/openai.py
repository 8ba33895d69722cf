"""Parses OpenAI's stream events and answers into values. No IO, no clock. Requests are in openai_request.py.

Each event is decoded into a struct that names only the fields we need, which costs about as much as the byte scans
it replaces, is exact, and finds malformed JSON before a caller does. The bytes passed on are the upstream's own.
"""

import json
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Annotated, Final, TypeVar, cast

import msgspec
from msgspec.structs import replace

from backends.errors import UnreadableAnswer
from backends.formats.json_objects import decode_object, objects_of
from backends.formats.usage_wire import MalformedUsage, parse_openai_usage, parse_timings
from backends.http.errors import error_from_event, no_answer
from backends.http.stream_reader import StreamReader
from backends.protocol import Chunk
from backends.usage import Usage

DONE: Final = b"data: [DONE]\n\n"
MOST_CHOICES: Final = 1_000
_GIVEN_UP: Final = frozenset({"abort", "error", "insufficient_system_resource", "network_error"})
"""Finish reasons of an answer that was not brought to its end: vLLM and SGLang, OpenRouter, DeepSeek, Z.ai."""
_BAD_CALL: Final = "function_call_filter"
"""How Gemini's compatible endpoint begins the finish reason of an answer with a call that its model wrote badly."""
_COMPLETION: Final = "text_completion"
_LONGEST_END: Final = 16
"""Of `[DONE]` and white space after it."""
_MOST_JOINED: Final = 64  # events; bounds how often an event that cannot be joined is decoded again


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Text(msgspec.Struct):
    """A delta or a message."""

    content: str | list[object] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    audio: dict[str, object] | None = None

    def output(self) -> tuple[bool, int]:
        """(whether anything was said, its length in characters), reasoning and tool calls included."""
        content, thought = self.content, self.reasoning_content
        if type(content) is str and content and thought is None and self.reasoning is None and self.tool_calls is None:
            return True, len(content)  # nearly every event of a stream
        count = len(content) if isinstance(content, str) else sum(map(_part_characters, content or ()))
        thought = thought if thought is not None else self.reasoning
        if count and thought is None and self.tool_calls is None:
            return True, count
        count += len(thought or "") + len(self.refusal or "")
        calls = self.tool_calls or ()
        for function in (*(call.function for call in calls), self.function_call):
            if function is not None:
                count += len(function.name or "") + len(function.arguments or "")
        return count > 0 or bool(calls) or self.audio is not None, count


class _Choice(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=0, le=MOST_CHOICES)] = 0
    """Bounded, since the reader remembers each; an invalid index is read as 0."""
    delta: _Text | None = None
    message: _Text | None = None
    text: str | None = None
    finish_reason: str | None = None
    usage: object = None

    @property
    def is_bare(self) -> bool:
        return self.message is None and self.delta is None and self.text is None

    def output(self) -> tuple[bool, int]:
        """As `_Text.output`, for a message, a delta or a plain completion; Perplexity's messages have both."""
        text = self.message or self.delta
        if text is not None:
            return text.output()
        return bool(self.text), len(self.text or "")


class ChatEvent(msgspec.Struct):
    kind: str | None = msgspec.field(default=None, name="object")
    choices: list[_Choice] | None = None
    usage: dict[str, object] | list[object] | str | float | bool | None = None
    error: dict[str, object] | str | None = None
    service_tier: str | None = None
    x_groq: dict[str, object] | None = None
    x_breakeven: dict[str, object] | None = None
    timings: dict[str, object] | None = None
    """llama.cpp's. A usage beside them is of one choice, however many the answer has."""

    @property
    def is_failure(self) -> bool:
        """Some servers write all fields of their types: an empty error beside an answer is none."""
        return self.kind == "error" or (self.error is not None and bool(self.error or not self.choices))


_EVENT: Final = msgspec.json.Decoder(ChatEvent)


def error_body(message: str, *, kind: str, code: str | None = None, param: str | None = None) -> bytes:
    """OpenAI's error shape."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def event_bytes(data: bytes) -> bytes:
    """One SSE event. A raw newline in JSON is whitespace, so it may become a space."""
    if b"\n" in data:
        data = data.replace(b"\n", b" ")
    return b"data: " + data + b"\n\n"


class OpenAIStreamReader(StreamReader):
    """Turns the data of one stream's events into chunks and knows whether the stream ended properly."""

    __slots__ = ("_finished_choices", "_joins", "_seen_choices", "_used_by_choices", "_wants_usage")

    def __init__(self, backend: str, *, wants_usage_chunk: bool, joins_events: bool = False) -> None:
        # Not through super().__init__, to save a call per stream.
        self._backend = backend
        self.is_started = False
        self.is_done = False
        self._wants_usage = wants_usage_chunk
        self._joins = joins_events
        self._seen_choices: set[int] = set()
        self._finished_choices: set[int] = set()
        self._used_by_choices: Usage | None = None

    def read(self, data: bytes) -> list[Chunk]:
        """The chunk for one event. Raises StreamBroken, or before the first chunk any retryable error."""
        if data == b"null":  # llama.cpp's first event for several prompts
            return []
        if len(data) < _LONGEST_END and data.strip() == b"[DONE]":
            if not self._seen_choices and not self._finished_choices:
                raise self._broken("ended its stream without an answer")
            self.is_done = True
            return [Chunk(DONE, is_done=True)]
        event, data = self._decode(data)
        if event.is_failure:
            raise self._failed(event.error)
        chunk = self._chunk((event,), data.replace(b"\n", b" "))
        self._note(chunk)
        return [chunk]

    def join(self, events: deque[bytes]) -> Chunk | None:
        """As `StreamReader.join`: all events except `[DONE]` in one chunk, unless one is an error or not JSON."""
        if not self._joins:
            return None
        datas = list(islice(events, _MOST_JOINED))
        count = len(datas) - (datas[-1] == b"[DONE]")
        lines = b"\n".join(datas[:count])
        if count < 2 or lines.count(b"\n") >= count:
            return None
        try:
            decoded = _EVENT.decode_lines(lines)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if len(decoded) != count or _has_failure(decoded):
            return None
        chunk = self._chunk(decoded, lines)
        self._note(chunk)
        for _ in decoded:
            events.popleft()
        return chunk

    def end(self) -> list[Chunk]:
        """The stream ended without `[DONE]`: the closing chunk if every choice had finished. Raises otherwise."""
        if self._finished_choices and self._seen_choices <= self._finished_choices:
            self.is_done = True
            return [Chunk(DONE, is_done=True)]
        return super().end()

    def _note(self, chunk: Chunk) -> None:
        if chunk.has_output or chunk.finish_reason:
            self.is_started = True

    def _decode(self, data: bytes) -> tuple[ChatEvent, bytes]:
        try:
            return _EVENT.decode(data), data
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        try:
            return decode_leniently(data)
        except ValueError as error:
            raise self._broken("sent an event that is not JSON") from error

    def _chunk(self, events: Sequence[ChatEvent], lines: bytes) -> Chunk:
        """One chunk for these events; `lines` has one line of data per event."""
        characters = 0
        has_output = is_malformed = False
        finish_reason = usage = timings = None
        for event in events:
            has_usage = event.usage is not None or event.x_groq is not None
            for choice in event.choices or ():
                text = choice.delta
                found, count = choice.output() if text is None else text.output()
                if found:
                    has_output = True
                    characters += count
                if choice.finish_reason:
                    finish_reason = choice.finish_reason
                    self._finished_choices.add(choice.index)
                else:
                    self._seen_choices.add(choice.index)
                has_usage = has_usage or choice.usage is not None
            if has_usage:
                found_usage, is_no_usage = _usage(event)
                if found_usage is not None and event.timings is not None:
                    found_usage = self._used_by_choices = _with_another_choice(
                        self._used_by_choices, found_usage, event
                    )
                usage, is_malformed = found_usage or usage, is_malformed or is_no_usage
            if finish_reason and _is_given_up(finish_reason):
                given_up = self._broken("gave up in the middle of the answer")
                given_up.usage = usage
                raise given_up
            if event.x_breakeven:
                timings = parse_timings(event.x_breakeven)
        if self._wants_usage or b'"usage"' not in lines:
            payload = b"data: " + lines.replace(b"\n", b"\n\ndata: ") + b"\n\n"
        else:
            payload = b"".join(map(_without_usage, events, lines.split(b"\n")))
        return Chunk(payload, has_output, characters, finish_reason, usage, timings, False, is_malformed)


def _with_another_choice(so_far: Usage | None, usage: Usage, event: ChatEvent) -> Usage:
    """Choices of a chat share their prompt; completions may each have their own."""
    if so_far is None:
        return usage
    of_one = event.kind != _COMPLETION
    return replace(
        usage,
        input_tokens=usage.input_tokens + (0 if of_one else so_far.input_tokens),
        cached_input_tokens=usage.cached_input_tokens + (0 if of_one else so_far.cached_input_tokens),
        output_tokens=usage.output_tokens + so_far.output_tokens,
        reasoning_tokens=usage.reasoning_tokens + so_far.reasoning_tokens,
    )


def _of_all_choices(event: ChatEvent, usage: Usage, characters: int) -> Usage | None:
    """An estimate from the first choice's usage; None if each choice may have had a prompt of its own."""
    choices = event.choices or []
    _, of_first = choices[0].output()
    if event.kind == _COMPLETION:
        return None
    share = characters / of_first if of_first else len(choices)
    return replace(usage, output_tokens=round(usage.output_tokens * share), is_estimated=True)


def _has_failure(events: Sequence[ChatEvent]) -> bool:
    for event in events:
        if event.is_failure:
            return True
        for choice in event.choices or ():
            if choice.finish_reason and _is_given_up(choice.finish_reason):
                return True
    return False


def _is_given_up(finish_reason: str) -> bool:
    return finish_reason in _GIVEN_UP or finish_reason.startswith(_BAD_CALL)


def _without_usage(event: ChatEvent, data: bytes) -> bytes:
    if event.usage is not None and not event.choices:
        return b""
    # With include_usage OpenAI adds this to every chunk. The quotes are unescaped, so the bytes cannot be inside a
    # string: they can only be a member.
    return b"data: %b\n\n" % data.replace(b',"usage":null', b"", 1)


def read_answer(body: bytes, *, backend: str, has_choices: bool = True) -> Chunk:
    """The single chunk of an answer that is not streamed; embeddings have no choices. Raises UnreadableAnswer if the
    body is no answer: some providers say in a 200 what went wrong."""
    try:
        event = _EVENT.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            event, body = decode_leniently(body)
        except ValueError as error:
            raise no_answer(f"{backend} answered with something that is not JSON", body) from error
    if event.error is not None and event.is_failure:
        raise error_from_event(event.error, backend=backend, is_started=False)
    has_output, characters, finish_reason = not event.choices, 0, None
    for choice in event.choices or ():
        is_said, count = choice.output()
        has_output = has_output or is_said
        characters += count
        finish_reason = finish_reason or choice.finish_reason or None
    usage, is_malformed = _usage(event, has_choices=has_choices)
    if usage is not None and event.timings is not None and len(event.choices or ()) > 1:
        usage = _of_all_choices(event, usage, characters)
    if (has_choices and not event.choices) or _is_given_up(finish_reason or ""):
        raise UnreadableAnswer(f"{backend} gave up its answer", usage=usage, output_characters=characters)
    if any(choice.finish_reason and choice.is_bare for choice in event.choices or ()):
        body = _with_messages(body)
    return Chunk(
        body,
        has_output=has_output,
        output_characters=characters,
        finish_reason=finish_reason,
        usage=usage,
        timings=parse_timings(event.x_breakeven),
        is_done=True,
        is_usage_malformed=is_malformed,
    )


def _with_messages(body: bytes) -> bytes:
    """Gemini's compatible endpoint leaves the message out of a choice that it filtered, on which clients break."""
    document = decode_object(body) or {}
    for choice in objects_of(document.get("choices")):
        if choice.get("message") is None:
            choice["message"] = {"role": "assistant", "content": None}
    return msgspec.json.encode(document)


def _part_characters(part: object) -> int:
    """Mistral streams reasoning as a list of parts, `{"type": "thinking", "thinking": [{"text": ...}]}`."""
    if not isinstance(part, dict):
        return 0
    fields = cast(dict[str, object], part)
    text, thinking = fields.get("text"), fields.get("thinking")
    count = len(text) if isinstance(text, str) else 0
    return count + sum(_part_characters(inner) for inner in cast(list[object], thinking or ()))


def _usage(event: ChatEvent, *, has_choices: bool = True) -> tuple[Usage | None, bool]:
    """(usage, wherever the provider puts it; whether there was one that cannot be believed)."""
    wire: object = event.usage
    if wire is None and event.x_groq is not None:
        wire = event.x_groq.get("usage")
    for choice in event.choices or ():  # Moonshot puts it inside the choice
        wire = choice.usage if wire is None else wire
    if wire is None:
        return None, False
    if not has_choices and isinstance(wire, dict) and wire.keys() == {"total_tokens"}:  # Voyage's of embeddings
        wire = {"prompt_tokens": cast(dict[str, object], wire)["total_tokens"]}
    try:
        return parse_openai_usage(wire, service_tier=event.service_tier), False
    except MalformedUsage:
        return None, True


def decode_leniently(data: bytes) -> tuple[ChatEvent, bytes]:
    """An event whose fields have unexpected types, or with NaN, which is not JSON. Raises ValueError if no object.

    We ignore members of unexpected types, but the caller still gets them: the bytes stay the same, unless they have NaN
    or infinite numbers, which become strings.
    """
    strange: list[str] = []

    def keep_as_text(number: str) -> str:
        strange.append(number)
        return number

    def finite(number: str) -> float | str:
        return float(number) if math.isfinite(float(number)) else keep_as_text(number)

    try:
        document: object = json.loads(data, parse_constant=keep_as_text, parse_float=finite)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(document, dict):
        raise ValueError("not an object")
    fields = cast(dict[str, object], document)
    choices = fields.get("choices")
    event = _fitting(ChatEvent, {key: value for key, value in fields.items() if key != "choices"})
    if isinstance(choices, list):
        event.choices = [_lenient_choice(choice) for choice in cast(list[object], choices)]
    return event, json.dumps(document).encode() if strange else data


def _lenient_choice(wire: object) -> _Choice:
    fields = cast(dict[str, object], wire) if isinstance(wire, dict) else {}
    choice = _fitting(_Choice, {key: value for key, value in fields.items() if key not in ("delta", "message")})
    for name in ("delta", "message"):
        if isinstance(fields.get(name), dict):
            setattr(choice, name, _fitting(_Text, cast(dict[str, object], fields[name])))
    return choice


_S = TypeVar("_S", ChatEvent, _Choice, _Text)


def _fitting(kind: type[_S], fields: dict[str, object]) -> _S:
    """A struct with the members whose types are as expected."""
    result = kind()
    for name in kind.__struct_fields__:
        if name in fields:
            with suppress(msgspec.ValidationError):
                setattr(result, name, getattr(msgspec.convert({name: fields[name]}, kind), name))
    return result
