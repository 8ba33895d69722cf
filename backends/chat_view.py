"""An OpenAI chat body as typed values, for the adapters that must say the same thing in another wire format. Pure.

Fields that a format cannot say are either dropped (they tune the answer: `seed`, `logit_bias`, ...) or refused (without
them the answer would be another one: `n` above 1, audio). docs/backends.md lists which, per format.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, cast

import msgspec

from backends.errors import UpstreamRejected
from backends.json_objects import Fields, part_of, text_of
from backends.openai_format import error_body

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)
_NO_PARAMETERS: Final[Fields] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Text:
    """`cache_control` is Anthropic's, which callers may set on any part."""

    text: str
    cache_control: Fields | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a document or a sound: either by `url`, or inline as base64 `data` of `media_type`."""

    kind: Literal["image", "document", "audio"]
    url: str | None = None
    media_type: str = ""
    data: str = ""
    name: str | None = None
    cache_control: Fields | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    call_id: str
    name: str
    arguments: Fields
    signature: str | None = None
    """Gemini's thought signature, which its next turn wants back."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    parts: tuple["Part", ...]


Part = Text | Media | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Turn:
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str | None
    parameters: Fields
    is_strict: bool


@dataclass(frozen=True, slots=True)
class ChatView:
    """The request. `tool_choice` is "auto", "none", "required", ("tool", name), or None when not given."""

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...]
    tool_choice: Literal["auto", "none", "required"] | tuple[Literal["tool"], str] | None
    parallel_tool_calls: bool | None
    max_output_tokens: int | None
    stop: tuple[str, ...]
    json_schema: Fields | None
    wants_json: bool
    fields: Fields
    """Everything as it came, for fields that need no parsing."""


def untranslatable(param: str, why: str) -> UpstreamRejected:
    """The caller's request cannot be said in this backend's format."""
    body = error_body(f"{param}: {why}", kind="invalid_request_error", code="unsupported_parameter", param=param)
    return UpstreamRejected(f"{param}: {why}", status=400, body=body)


def parse_chat(body: bytes) -> ChatView:
    """Raises UpstreamRejected, naming the field, when the body is not a chat request we can translate."""
    fields = _object(_decode(body), "body")
    if fields.get("n") not in (None, 1):
        raise untranslatable("n", "only one choice can be asked of this model")
    if "audio" in _list(fields.get("modalities"), "modalities"):
        raise untranslatable("modalities", "this model cannot answer with audio")
    schema, wants_json = _response_format(fields.get("response_format"))
    limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
    return ChatView(
        turns=tuple(_turns(fields.get("messages"))),
        tools=tuple(_tools(fields)),
        tool_choice=_tool_choice(fields.get("tool_choice")),
        parallel_tool_calls=parallel if isinstance(parallel := fields.get("parallel_tool_calls"), bool) else None,
        max_output_tokens=limit if isinstance(limit, int) else None,
        stop=_stop(fields.get("stop")),
        json_schema=schema,
        wants_json=wants_json,
        fields=fields,
    )


def _decode(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise untranslatable("body", f"not JSON: {error}") from error


def _object(value: object, where: str) -> Fields:
    if not isinstance(value, dict):
        raise untranslatable(where, "must be an object")
    return cast(Fields, value)


def _list(value: object, where: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise untranslatable(where, "must be a list")
    return cast(list[object], value)


def _turns(messages: object) -> Iterator[Turn]:
    for position, item in enumerate(_list(messages, "messages")):
        where = f"messages[{position}]"
        message = _object(item, where)
        role = message.get("role")
        parts = tuple(_parts(message.get("content"), f"{where}.content"))
        if role in ("system", "developer"):
            yield Turn("system", parts)
        elif role == "user":
            yield Turn("user", parts)
        elif role == "assistant":
            refusal = text_of(message, "refusal")
            calls = tuple(_tool_calls(message, where))
            yield Turn("assistant", (*parts, *((Text(refusal),) if refusal else ()), *calls))
        elif role in ("tool", "function"):
            call_id = text_of(message, "tool_call_id") or text_of(message, "name") or ""
            yield Turn("user", (ToolResult(call_id, parts),))
        else:
            raise untranslatable(f"{where}.role", "must be system, developer, user, assistant or tool")


def _parts(content: object, where: str) -> Iterator[Part]:
    if content is None:
        return
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    for position, item in enumerate(_list(content, where)):
        yield _part(_object(item, f"{where}[{position}]"), f"{where}[{position}]")


def _part(part: Fields, where: str) -> Part:
    kind = part.get("type")
    cache = part.get("cache_control")
    cache_control = cast(Fields, cache) if isinstance(cache, dict) else None
    if kind in ("text", "refusal"):
        return Text(text_of(part, cast(str, kind)) or "", cache_control)
    if kind == "image_url":
        image = part.get("image_url")
        url = image if isinstance(image, str) else text_of(_object(image, f"{where}.image_url"), "url")
        return _media("image", url or "", where, cache_control)
    if kind == "file":
        file = _object(part.get("file"), f"{where}.file")
        data = text_of(file, "file_data")
        if data is None:
            raise untranslatable(f"{where}.file", "must carry file_data: a file id means nothing to this model")
        return _media("document", data, where, cache_control, text_of(file, "filename"))
    if kind == "input_audio":
        audio = _object(part.get("input_audio"), f"{where}.input_audio")
        media_type = f"audio/{text_of(audio, 'format') or 'wav'}"
        return Media("audio", media_type=media_type, data=text_of(audio, "data") or "", cache_control=cache_control)
    raise untranslatable(f"{where}.type", "unknown part")


def _media(
    kind: Literal["image", "document"], url: str, where: str, cache_control: Fields | None, name: str | None = None
) -> Media:
    inline = _DATA_URL.fullmatch(url)
    if inline:
        return Media(kind, None, inline[1], inline[2], name, cache_control)
    if not url.startswith(("https://", "http://")):
        raise untranslatable(where, "must be an http(s) address or a base64 data URL")
    return Media(kind, url, name=name, cache_control=cache_control)


def _tool_calls(message: Fields, where: str) -> Iterator[ToolCall]:
    calls = _list(message.get("tool_calls"), f"{where}.tool_calls")
    if isinstance(message.get("function_call"), dict):
        calls = [*calls, {"function": message["function_call"]}]
    for position, item in enumerate(calls):
        here = f"{where}.tool_calls[{position}]"
        call = _object(item, here)
        function = _object(call.get("function"), f"{here}.function")
        name = text_of(function, "name") or ""
        text = text_of(function, "arguments") or "{}"
        try:
            arguments: object = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise untranslatable(f"{here}.function.arguments", "not JSON") from error
        google = part_of(part_of(call, "extra_content"), "google")
        yield ToolCall(
            call_id=text_of(call, "id") or name,
            name=name,
            arguments=_object(arguments, f"{here}.function.arguments"),
            signature=text_of(google, "thought_signature"),
        )


def _tools(fields: Fields) -> Iterator[Tool]:
    tools = _list(fields.get("tools"), "tools")
    tools += [{"type": "function", "function": function} for function in _list(fields.get("functions"), "functions")]
    for position, item in enumerate(tools):
        tool = _object(item, f"tools[{position}]")
        if tool.get("type") != "function":
            raise untranslatable(f"tools[{position}].type", "only functions can be translated")
        function = _object(tool.get("function"), f"tools[{position}].function")
        parameters = function.get("parameters")
        yield Tool(
            name=text_of(function, "name") or "",
            description=text_of(function, "description"),
            parameters=cast(Fields, parameters)
            if isinstance(parameters, dict)
            else {"type": "object", "properties": {}},
            is_strict=function.get("strict") is True,
        )


def _tool_choice(choice: object) -> Literal["auto", "none", "required"] | tuple[Literal["tool"], str] | None:
    if choice is None or choice == "auto" or choice == "none" or choice == "required":
        return cast(Literal["auto", "none", "required"] | None, choice)
    if isinstance(choice, dict):
        function = cast(Fields, choice).get("function")
        name = text_of(cast(Fields, function), "name") if isinstance(function, dict) else None
        if name:
            return ("tool", name)
    raise untranslatable("tool_choice", "must be auto, none, required or a function")


def _stop(stop: object) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    return tuple(item for item in _list(stop, "stop") if isinstance(item, str))


def _response_format(value: object) -> tuple[Fields | None, bool]:
    """(schema, whether JSON is wanted)."""
    if value is None:
        return None, False
    kind = _object(value, "response_format").get("type")
    if kind == "text":
        return None, False
    if kind == "json_object":
        return None, True
    if kind == "json_schema":
        described = _object(cast(Fields, value).get("json_schema"), "response_format.json_schema")
        return _object(described.get("schema"), "response_format.json_schema.schema"), True
    raise untranslatable("response_format", "must be text, json_object or json_schema")
