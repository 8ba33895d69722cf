"""Rewrites chats that a server refuses for more than their messages. Pure."""

import re
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from backends.formats.answer_schema import schema_in
from backends.formats.json_objects import decode_object, without_escapes
from backends.formats.json_splice import MEMBERS, find_members, objects_in, splice

ChatMend = Callable[[bytes], bytes]
"""From a chat to one that the server takes; the same bytes if there is nothing to change."""

_NO_PARAMETERS: Final = msgspec.Raw(b'{"type":"object","properties":{}}')


def without_thinking_unless_streamed(body: bytes) -> bytes:
    """Unless the caller says how to think: then another model may do so."""
    members = find_members(body)
    stream = members.get("stream")
    is_stream = stream is not None and stream.of(body) == b"true"
    if is_stream or members.keys() & {"enable_thinking", "reasoning_effort"}:
        return body
    return splice(body, {"enable_thinking": b"false"}, members)


def with_parameters(body: bytes) -> bytes:
    """Functions without parameters say that they have none, which OpenAI's format may leave out."""
    members = find_members(body)
    listed = members.get("tools")
    if listed is None:
        return body
    try:
        tools = objects_in(listed.of(body))
        functions = [(tool, MEMBERS.decode(tool["function"])) for tool in tools if "function" in tool]
    except msgspec.DecodeError:  # its provider's to refuse
        return body
    bare = [(tool, function) for tool, function in functions if "parameters" not in function]
    for tool, function in bare:
        tool["function"] = msgspec.Raw(msgspec.json.encode(function | {"parameters": _NO_PARAMETERS}))
    return splice(body, {"tools": msgspec.json.encode(tools)}, members) if bare else body


def with_called_functions(body: bytes) -> bytes:
    """A chat without functions has those that its past calls name, and may call none: summaries are asked for so."""
    members = find_members(body)
    messages, listed = members.get("messages"), members.get("tools")
    if messages is None or (listed and listed.of(body) not in (b"null", b"[]")):
        return body
    try:
        found = objects_in(messages.of(body))
        calls = [call for message in found for call in objects_in(message.get("tool_calls", b"[]"))]
        functions = [MEMBERS.decode(call["function"]) for call in calls if "function" in call]
    except msgspec.DecodeError:  # its provider's to refuse
        return body
    named = dict.fromkeys(bytes(function["name"]) for function in functions if "name" in function)
    if not named:
        return body
    tools = [
        {"type": "function", "function": {"name": msgspec.Raw(name), "parameters": _NO_PARAMETERS}} for name in named
    ]
    return splice(body, {"tools": msgspec.json.encode(tools), "tool_choice": b'"none"'}, members)


def without_a_choice_of_none(body: bytes) -> bytes:
    """Functions that are not to be called may be, as where litellm is told to drop what Bedrock lacks."""
    members = find_members(body)
    choice = members.get("tool_choice")
    is_none = choice is not None and choice.of(body) == b'"none"'
    return splice(body, {"tool_choice": None}, members) if is_none else body


def without_nulls(body: bytes) -> bytes:
    """Without the fields that are null, which means at OpenAI that they are not there."""
    members = find_members(body)
    return splice(body, {name: None for name, one in members.items() if one.of(body) == b"null"}, members)


def with_schema_beside_type(body: bytes) -> bytes:
    """The answer's schema where llama-cpp-python reads it."""
    members = find_members(body)
    form = members.get("response_format")
    schema = schema_in(decode_object(form.of(body)) or {}) if form else None
    if schema is None:
        return body
    return splice(body, {"response_format": msgspec.json.encode({"type": "json_object", "schema": schema})}, members)


_MENDS: Final[Sequence[tuple[re.Pattern[bytes], ChatMend]]] = (
    (
        re.compile(
            rb"enable[_ ]thinking.{0,60}(?:non-streaming|stream=false|\xe9\x9d\x9e\xe6\xb5\x81\xe5\xbc\x8f)", re.I
        ),
        without_thinking_unless_streamed,
    ),
    (
        re.compile(
            rb'function (?:name or )?parameters is empty|parameters\\*" is a required property for'
            rb"|'function', 'parameters'\), 'msg': 'Field required'|\.function\.parameters: Field required"
        ),
        with_parameters,
    ),
    (
        re.compile(
            rb"tool_result`? blocks must define tools|tool calling without `tools=`"
            rb"|toolConfig field must be defined when using toolUse"
        ),
        with_called_functions,
    ),
    (re.compile(rb"doesn't support tool_choice=none"), without_a_choice_of_none),
    (
        re.compile(rb"'response_format', 'type'\), 'msg': \\*\"Input should be 'text' or 'json_object'\\*\""),
        with_schema_beside_type,
    ),
    (
        re.compile(
            rb"\('body', '\w{1,64}'\), 'msg': '[^']{1,80}', 'input': None"
            rb"|\b\w{1,64} must be of type [(\w]|\bbody(?:\.\w{1,64}){1,3}: Input should be "
        ),
        without_nulls,
    ),
)
"""How DashScope, also in Chinese, and ModelScope refuse to think in an answer that is not streamed, which Qwen3's open
models do by default; Databricks, LitServe, llama-cpp-python and MiniMax functions without parameters; Anthropic,
Bedrock and litellm past calls without functions; litellm in front of Bedrock functions that are not to be called;
llama-cpp-python a schema where OpenAI has it; and Infinity, llama-cpp-python and mlx_lm.server a field that is null."""


def chat_mend_for(refusal: bytes) -> ChatMend | None:
    return next((mend for words, mend in _MENDS if words.search(refusal)), None)


def may_be_quoted(body: bytes) -> bool:
    """Whether a chat has the words of such an error: a server that repeats them says nothing about other chats."""
    return chat_mend_for(without_escapes(body)) is not None
