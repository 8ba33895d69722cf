"""Translates the custom tools of a chat, whose input is one free text, to functions of one text for models that have
none, and their calls back; and leaves out the other tools of a chat that allows some. Pure."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, cast

import msgspec

from backends.endpoints.chat_text import arguments_in
from backends.endpoints.responses_tools import Tool, arguments_of, function_of_tool, input_of, is_among_some
from backends.endpoints.tool_call_deltas import ToolCallNumbers
from backends.formats.json_objects import Fields, decode_object, integer, objects_of, part_of, text_of
from backends.formats.responses_request import custom_of_response
from backends.protocol import Chunk

_KIND: Final = "custom"


class OfFunctions(NamedTuple):
    """The chat with functions alone, and the names of those that stand for custom tools."""

    body: bytes
    names: Collection[str]


def may_need_functions(body: bytes) -> bool:
    """Whether `with_functions` may change the chat: a search for bytes spares most chats parsing."""
    return body.find(b'"custom"') >= 0 or body.find(b'"allowed_tools"') >= 0


def with_functions(body: bytes) -> OfFunctions | None:
    """None for a chat without custom tools or their calls, and that allows all of its tools."""
    fields = decode_object(body) or {}
    tools = fields.get("tools")
    names = {text_of(part_of(tool, _KIND), "name") or "" for tool in objects_of(tools) if tool.get("type") == _KIND}
    chat = dict(fields)
    if isinstance(messages := fields.get("messages"), list):
        chat["messages"] = [_with_function_calls(one) for one in cast(list[object], messages)]
    if names and isinstance(tools, list):
        chat["tools"] = [_function(one) for one in cast(list[object], tools)]
    choice = part_of(fields, "tool_choice")
    if names and choice.get("type") == _KIND:
        chat["tool_choice"] = {"type": "function", "function": {"name": _name_of(choice)}}
    elif is_among_some(choice):
        allowed = part_of(choice, "allowed_tools")
        among = {_name_of(one) for one in objects_of(allowed.get("tools"))}
        chat["tools"] = [one for one in objects_of(chat.get("tools")) if _name_of(one) in among]
        chat["tool_choice"] = allowed.get("mode")
    return None if chat == fields else OfFunctions(msgspec.json.encode(chat), names)


def _name_of(tool: Mapping[str, object]) -> str | None:
    """Of a function or a custom tool, or one that is named in a choice."""
    return text_of(part_of(tool, "function") or part_of(tool, _KIND), "name")


def _function(tool: object) -> object:
    if not isinstance(tool, dict) or cast(Fields, tool).get("type") != _KIND:
        return tool
    flat = custom_of_response(dict(part_of(cast(Fields, tool), _KIND)))
    name = text_of(flat, "name") or ""
    return function_of_tool(name, Tool("custom", name, None, flat))


def _with_function_calls(message: object) -> object:
    calls = cast(Fields, message).get("tool_calls") if isinstance(message, dict) else None
    if not any(call.get("type") == _KIND for call in objects_of(calls)):
        return message
    return cast(Fields, message) | {"tool_calls": [_function_call(call) for call in objects_of(calls)]}


def _function_call(call: Fields) -> Fields:
    if call.get("type") != _KIND:
        return call
    custom = part_of(call, _KIND)
    function = {"name": custom.get("name"), "arguments": arguments_of(custom.get("input"))}
    return {"id": call.get("id"), "type": "function", "function": function}


def with_custom_calls(body: bytes, names: Collection[str]) -> bytes:
    """A whole answer."""
    document = decode_object(body) or {}
    for choice in objects_of(document.get("choices")):
        message = choice.get("message")
        if isinstance(message, dict) and (calls := objects_of(cast(Fields, message).get("tool_calls"))):
            message["tool_calls"] = [_custom_call(call, names) for call in calls]
    return msgspec.json.encode(document)


def _custom_call(call: Fields, names: Collection[str]) -> Fields:
    function = part_of(call, "function")
    name = text_of(function, "name")
    if name not in names:
        return call
    return {"id": call.get("id"), "type": _KIND, _KIND: {"name": name, "input": input_of(arguments_in(function) or "")}}


class CustomCallWriter:
    """One stream, whose chunks are passed in order. What a custom tool is told comes at once, when its choice ends: of
    a function's arguments only the whole can be read."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._numbers = defaultdict[int, ToolCallNumbers](ToolCallNumbers)  # by choice
        self._told = defaultdict[int, dict[int, list[str]]](dict)  # arguments of custom calls, by choice and number

    def write(self, chunk: Chunk) -> bytes:
        """Raises EndlessAnswer."""
        document = decode_object(chunk.payload[6:]) if chunk.payload and not chunk.is_done else None
        if document is None:
            return chunk.payload
        for choice in objects_of(document.get("choices")):
            place, delta = integer(choice, "index") or 0, dict(part_of(choice, "delta"))
            calls = [made for call in objects_of(delta.get("tool_calls")) for made in self._call(place, call)]
            if choice.get("finish_reason"):
                ended = self._told.pop(place, {})
                calls += [
                    {"index": number, _KIND: {"input": input_of("".join(told))}} for number, told in ended.items()
                ]
            choice["delta"] = {name: said for name, said in delta.items() if name != "tool_calls"} | (
                {"tool_calls": calls} if calls else {}
            )
        return b"data: %b\n\n" % msgspec.json.encode(document)

    def _call(self, place: int, call: Fields) -> list[Fields]:
        function, number = part_of(call, "function"), self._numbers[place].number(call)
        name, begun = text_of(function, "name"), self._told[place]
        is_new = name in self._names and number not in begun
        if is_new:
            begun[number] = []
        elif number not in begun:
            return [call | {"index": number}]
        begun[number].append(arguments_in(function) or "")
        head: Fields = {"index": number, "id": call.get("id"), "type": _KIND, _KIND: {"name": name, "input": ""}}
        return [head] if is_new else []
