"""An OpenAI chat body as typed values, for adapters that translate it to another wire format. Pure.

Messages are parsed here, all other fields in chat_fields.py.
"""

import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, cast

import msgspec

from backends.formats.chat_fields import (
    Tool,
    ToolChoice,
    check_fields,
    invalid,
    list_of,
    mark_of,
    object_of,
    parse_response_format,
    parse_stop,
    parse_tools,
    refuse_unsayable,
    untranslatable,
)
from backends.formats.json_objects import NOT_JSON, Fields, decode_object, part_of, text_of

_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    """`cache_control` is Anthropic's; callers set it on parts, tools and calls, or on a whole message."""

    text: str
    cache_control: Fields | None = None


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a document or audio: either by `url`, or inline as base64 `data` of `media_type`."""

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
    """Gemini's thought signature, which must be sent back in the next turn."""
    cache_control: Fields | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    parts: tuple["Part", ...]
    cache_control: Fields | None = None


Part = Text | Media | ToolCall | ToolResult


@dataclass(frozen=True, slots=True)
class Turn:
    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ChatView:
    """The request. `tool_choice` is "auto", "none", "required", ("tool", name), or None when not given."""

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...]
    tool_choice: ToolChoice | None
    parallel_tool_calls: bool | None
    max_output_tokens: int | None
    stop: tuple[str, ...]
    json_schema: Fields | None
    wants_json: bool
    fields: Fields
    """The whole body as received, for fields that need no parsing."""


def parse_chat(body: bytes) -> ChatView:
    """Raises UpstreamRejected, naming the field, when the body is not a chat request we can translate."""
    fields = object_of(_decode(body), "body")
    refuse_unsayable(fields)
    check_fields(fields)
    schema, wants_json = parse_response_format(fields.get("response_format"))
    tools, choice = parse_tools(fields)
    limit = fields.get("max_completion_tokens")
    limit = fields.get("max_tokens") if limit is None else limit
    return ChatView(
        turns=_spoken(list(_turns(fields.get("messages")))),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel if isinstance(parallel := fields.get("parallel_tool_calls"), bool) else None,
        max_output_tokens=limit if isinstance(limit, int) else None,
        stop=parse_stop(fields.get("stop")),
        json_schema=schema,
        wants_json=wants_json,
        fields=fields,
    )


def _decode(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except NOT_JSON as error:
        raise invalid("body", f"not JSON: {error}") from error


def _spoken(turns: list[Turn]) -> tuple[Turn, ...]:
    """OpenAI answers a chat with only system messages or empty texts; other formats need a user turn, so the last
    system message becomes one."""
    said = [turn for turn in turns if turn.parts]
    if said and all(turn.role == "system" for turn in said):
        return (*said[:-1], Turn("user", said[-1].parts))
    return tuple(turns)


def _turns(messages: object) -> Iterator[Turn]:
    for position, item in enumerate(list_of(messages, "messages")):
        where = f"messages[{position}]"
        message = object_of(item, where)
        role = message.get("role")
        mark = mark_of(message)
        parts = tuple(_parts(message.get("content"), f"{where}.content"))
        if role in ("system", "developer"):
            yield Turn("system", _marked(parts, mark))
        elif role == "user":
            yield Turn("user", _marked(parts, mark))
        elif role == "assistant":
            if message.get("audio") and not parts:
                raise untranslatable(
                    f"{where}.audio", "spoken answers are stored at their provider; send the transcript"
                )
            refusal = text_of(message, "refusal")
            calls = tuple(_tool_calls(message, where))
            said = (*parts, *((Text(refusal),) if refusal else ()), *calls)
            yield Turn("assistant", _marked(said, mark))
        elif role in ("tool", "function"):
            call_id = text_of(message, "tool_call_id") or text_of(message, "name")
            if call_id is None:
                raise invalid(f"{where}.tool_call_id", "must name the call that this answers")
            yield Turn("user", (_result(call_id, parts, mark),))
        else:
            raise invalid(f"{where}.role", "must be system, developer, user, assistant or tool")


def _marked(parts: tuple[Part, ...], mark: Fields | None) -> tuple[Part, ...]:
    """The parts with a message's cache mark on the last one, unless that has its own."""
    if not mark or not parts or parts[-1].cache_control:
        return parts
    return (*parts[:-1], replace(parts[-1], cache_control=mark))


def _result(call_id: str, parts: tuple[Part, ...], mark: Fields | None) -> ToolResult:
    """Moves a mark from the parts to the result: Anthropic on cloud platforms rejects marks inside a result."""
    marks = [part.cache_control for part in parts if part.cache_control]
    return ToolResult(
        call_id, tuple(replace(part, cache_control=None) for part in parts), mark or next(iter(marks), None)
    )


def _parts(content: object, where: str) -> Iterator[Part]:
    if content is None:
        return
    if isinstance(content, str):
        if content:
            yield Text(content)
        return
    for position, item in enumerate(list_of(content, where)):
        fields = object_of(item, f"{where}[{position}]")
        if fields.get("type") == "thinking":  # of an answer of Mistral's
            continue
        part = _part(fields, f"{where}[{position}]")
        if not (isinstance(part, Text) and not part.text):  # other formats reject empty texts
            yield part


def _part(part: Fields, where: str) -> Part:
    kind = part.get("type")
    cache_control = mark_of(part)
    if kind in ("text", "refusal"):
        return Text(text_of(part, cast(str, kind)) or "", cache_control)
    if kind == "image_url":
        image = part.get("image_url")
        url = image if isinstance(image, str) else text_of(object_of(image, f"{where}.image_url"), "url")
        return _media("image", url or "", where, cache_control)
    if kind == "file":
        file = object_of(part.get("file"), f"{where}.file")
        data = text_of(file, "file_data")
        if data is None:
            raise untranslatable(f"{where}.file", "must have file_data: a file id is not valid for this model")
        return _file(data, f"{where}.file", cache_control, text_of(file, "filename"))
    if kind == "input_audio" and not isinstance(part.get("input_audio"), str):  # text: Mistral's form
        audio = object_of(part.get("input_audio"), f"{where}.input_audio")
        media_type = f"audio/{text_of(audio, 'format') or 'wav'}"
        return Media("audio", media_type=media_type, data=text_of(audio, "data") or "", cache_control=cache_control)
    raise untranslatable(f"{where}.type", "unknown part")


def _file(data: str, where: str, cache_control: Fields | None, name: str | None) -> Media:
    """A document, or an image if its type is one. For bare base64 the file name gives the type."""
    if not data.startswith(("data:", "https://", "http://")):
        guessed = mimetypes.guess_type(name or "")[0]
        data = f"data:{guessed or 'application/pdf'};base64,{data}"
    return _media("image" if data.startswith("data:image/") else "document", data, where, cache_control, name)


def _media(
    kind: Literal["image", "document"], url: str, where: str, cache_control: Fields | None, name: str | None = None
) -> Media:
    inline = _DATA_URL.fullmatch(url)
    if inline:
        media_type = "image/jpeg" if inline[1] == "image/jpg" else inline[1]  # OpenAI accepts both
        return Media(kind, None, media_type, inline[2], name, cache_control)
    if not url.startswith(("https://", "http://")):
        raise invalid(where, "must be an http(s) address or a base64 data URL")
    return Media(kind, url, name=name, cache_control=cache_control)


def _tool_calls(message: Fields, where: str) -> Iterator[ToolCall]:
    calls = list_of(message.get("tool_calls"), f"{where}.tool_calls")
    if isinstance(message.get("function_call"), dict):
        calls = [*calls, {"function": message["function_call"]}]
    for position, item in enumerate(calls):
        here = f"{where}.tool_calls[{position}]"
        call = object_of(item, here)
        if call.get("type") == "custom":
            raise untranslatable(f"{here}.type", "calls of custom tools cannot be sent to this model")
        function = object_of(call.get("function"), f"{here}.function")
        name = text_of(function, "name") or ""
        said = text_of(function, "arguments")
        arguments = decode_object((said or "").encode()) or {}  # none if it was cut off: its result tells the model
        google = part_of(part_of(call, "extra_content"), "google")
        yield ToolCall(
            call_id=text_of(call, "id") or name,
            name=name,
            arguments=arguments,
            signature=text_of(google, "thought_signature"),
            cache_control=mark_of(call),
        )
