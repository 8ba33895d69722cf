"""Translates what Cursor sends as a chat to a chat. Its agent asks in the form of the Responses API, names its tools in
that form or Anthropic's inside a chat, and reads a chat's answer. Pure."""

from typing import Final, cast

import msgspec

from backends.endpoints.messages_blocks import chat_messages
from backends.endpoints.messages_tools import CHOICES
from backends.endpoints.responses_format import chat_body_from_responses
from backends.endpoints.responses_tools import custom_of_chat
from backends.formats.json_objects import Fields, decode_object, objects_of, text_of

_BLOCKS: Final = ("tool_use", "tool_result")
_DESCRIBED: Final = ("name", "description", "parameters", "strict")


def chat_from_cursor(body: bytes) -> bytes:
    """The chat; the same bytes if they are no object, for the parser to refuse. Raises UpstreamRejected, naming the
    field."""
    fields = decode_object(body)
    if fields is None:
        return body
    if fields.get("input") and not fields.get("messages"):
        return chat_body_from_responses(body, keeps_custom=True)
    chat = dict(fields)
    if isinstance(messages := fields.get("messages"), list):
        chat["messages"] = [said for one in cast(list[object], messages) for said in _said(one)]
    if isinstance(tools := fields.get("tools"), list):
        chat["tools"] = list(map(_tool, cast(list[object], tools)))
    if isinstance(choice := fields.get("tool_choice"), dict):
        chat["tool_choice"] = _choice(cast(Fields, choice))
    return msgspec.json.encode(chat)


def _said(message: object) -> list[object]:
    if not isinstance(message, dict):
        return [message]
    fields = cast(Fields, message)
    content = fields.get("content")
    if content == []:  # beside calls; OpenAI refuses it
        return [fields | {"content": None}]
    if any(block.get("type") in _BLOCKS for block in objects_of(content)):
        return cast(list[object], chat_messages(fields))
    return [fields]


def _tool(tool: object) -> object:
    if not isinstance(tool, dict):
        return tool
    fields = cast(Fields, tool)
    kind = fields.get("type") or "function"
    if kind not in ("function", "custom") or kind in fields:
        return fields
    if kind == "custom" and "input_schema" not in fields:
        return custom_of_chat(fields)
    return _function(fields if "parameters" in fields else fields | {"parameters": fields.get("input_schema")})


def _function(fields: Fields) -> Fields:
    return {"type": "function", "function": {name: fields[name] for name in _DESCRIBED if fields.get(name) is not None}}


def _choice(choice: Fields) -> object:
    kind, name = text_of(choice, "type"), text_of(choice, "name")
    if kind in CHOICES:
        return CHOICES[kind]
    if name is None or kind not in ("function", "custom", "tool"):
        return choice
    kind = "custom" if kind == "custom" else "function"
    return {"type": kind, kind: {"name": name}}
