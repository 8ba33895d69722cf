"""Decodes OpenAI's stream events and answers. No IO, no clock.

Into a struct that names only the fields we need, which costs about as much as the byte scans it replaces, is exact, and
finds malformed JSON before a caller does.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Final, TypeVar, cast

import msgspec

from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of, text_of

MOST_CHOICES: Final = 1_000
_MAY_TELL: Final = (b'message"', b'status_msg"', b'error_code"')
_STATUS_LINE: Final = re.compile(r":HTTP_STATUS/(\d{3})\b")
_MINIMAX: Final[Mapping[int, int]] = {
    1002: 429,
    1004: 401,
    1008: 402,
    1026: 400,
    1027: 400,
    1039: 429,
    1041: 429,
    2013: 400,
    2045: 429,
    2049: 401,
    2056: 429,
}
"""Its error codes, and HTTP's status for the same; others are faults of its own."""


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class Text(msgspec.Struct):
    """A delta or a message."""

    content: str | list[object] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    audio: dict[str, object] | None = None
    executed_tools: list[object] | None = None
    """Groq's own tools that ran for the answer, which it bills beside the tokens."""

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
        # llama-cpp-python writes one call both ways.
        for function in (call.function for call in calls) if calls else (self.function_call,):
            if function is not None:
                count += len(function.name or "") + len(function.arguments or "")
        return count > 0 or bool(calls) or self.audio is not None, count


class Choice(msgspec.Struct):
    index: Annotated[int, msgspec.Meta(ge=0, le=MOST_CHOICES)] = 0
    """Bounded, since the reader remembers each; an invalid index is read as 0."""
    delta: Text | None = None
    message: Text | None = None
    text: str | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None
    """What OpenRouter's provider said. OpenRouter may call its failure a stop."""
    usage: object = None

    @property
    def tools_run(self) -> int:
        """How many of the provider's own tools ran so far; a stream may tell one twice, under its index."""
        text = self.message or self.delta
        if text is None or text.executed_tools is None:
            return 0
        told = objects_of(text.executed_tools)
        return max((len(told), *((integer(one, "index") or 0) + 1 for one in told))) if told else 0

    @property
    def is_bare(self) -> bool:
        return self.message is None and self.delta is None and self.text is None

    def output(self) -> tuple[bool, int]:
        """As `Text.output`, for a message, a delta or a plain completion; Perplexity's messages have both."""
        text = self.message or self.delta
        if text is not None:
            return text.output()
        return bool(self.text), len(self.text or "")


class ChatEvent(msgspec.Struct):
    kind: str | None = msgspec.field(default=None, name="object")
    choices: list[Choice] | None = None
    usage: dict[str, object] | list[object] | str | float | bool | None = None
    error: dict[str, object] | str | None = None
    service_tier: str | None = None
    x_groq: dict[str, object] | None = None
    x_breakeven: dict[str, object] | None = None
    timings: dict[str, object] | None = None
    """llama.cpp's. A usage beside them is of one choice, however many the answer has."""

    @property
    def is_failure(self) -> bool:
        """Some servers write all fields of their types: an empty error beside choices or usage is none."""
        is_alone = self.choices is None and self.usage is None
        return self.kind == "error" or (self.error is not None and bool(self.error or is_alone))


def _part_characters(part: object) -> int:
    """Mistral streams reasoning as a list of parts, `{"type": "thinking", "thinking": [{"text": ...}]}`; in
    Databricks's, of Claude and gpt-oss, the list is a `summary`."""
    if not isinstance(part, dict):
        return 0
    fields = cast(dict[str, object], part)
    text, thinking = fields.get("text"), fields.get("thinking") or fields.get("summary")
    count = len(text) if isinstance(text, str) else 0
    return count + sum(map(_part_characters, objects_of(thinking)))


def error_told(events: Sequence[ChatEvent], lines: Sequence[bytes]) -> Fields | None:
    """The error that events without choices tell in a form of their server's, as OpenAI's: DashScope's own and others'
    `code` and `message`, FastChat's `error_code` and `text`, Venice's `error_type` and `error_message`, and MiniMax's
    `base_resp`. `lines` are the data of each, and any of these is enough."""
    for event, line in zip(events, lines, strict=True):
        if event.choices or max(map(line.find, _MAY_TELL)) < 0:
            continue
        if (error := _told(decode_object(line) or {})) is not None:
            return error
    return None


def _told(fields: Fields) -> Fields | None:
    if fields.get("choices"):
        return None
    base = part_of(fields, "base_resp")
    if code := integer(base, "status_code"):
        return {"code": _MINIMAX.get(code), "message": text_of(base, "status_msg") or ""}
    message = next(filter(None, (text_of(fields, name) for name in ("error_message", "message", "text"))), None)
    kind = next(filter(None, (fields.get(name) for name in ("error_type", "error_code", "code"))), None)
    return {"code": kind, "message": message} if message and kind and kind not in (200, "200") else None


def error_in_text(text: str) -> Fields:
    """The error that DashScope puts in place of a text that ends with `error_finish`: lines with the HTTP status and
    with an object."""
    status = _STATUS_LINE.search(text)
    said = decode_object(text.partition("data:")[2].partition("\n")[0].encode()) or {}
    message, kind = text_of(said, "message") or "", text_of(said, "code")
    return {"code": int(status[1]) if status else kind, "type": kind, "message": message}


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


def _lenient_choice(wire: object) -> Choice:
    fields = cast(dict[str, object], wire) if isinstance(wire, dict) else {}
    choice = _fitting(Choice, {key: value for key, value in fields.items() if key not in ("delta", "message")})
    for name in ("delta", "message"):
        if isinstance(fields.get(name), dict):
            setattr(choice, name, _fitting(Text, cast(dict[str, object], fields[name])))
    return choice


_S = TypeVar("_S", ChatEvent, Choice, Text)


def _fitting(kind: type[_S], fields: dict[str, object]) -> _S:
    """A struct with the members whose types are as expected."""
    result = kind()
    for name in kind.__struct_fields__:
        if name in fields:
            with suppress(msgspec.ValidationError):
                setattr(result, name, getattr(msgspec.convert({name: fields[name]}, kind), name))
    return result
