"""Translates a request of Anthropic's Messages API to an OpenAI chat body. Pure.

messages_events.py translates the answer. docs/translation.md lists what is lost.
"""

import re
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.endpoints.function_names import may_be_renamed, name_for_chats, own_names
from backends.endpoints.messages_events import messages_error
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.json_objects import Fields, decode_object, number, objects_of, part_of, text_of
from backends.formats.past_thinking import DETAILS, THOUGHT, detail_of, is_carried, name_thoughts
from backends.formats.schema_subset import for_openai, is_strict
from backends.formats.user_ids import user_of_chat

_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS: Final = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
"""Only some of OpenAI's models accept `max`."""
_CONTINUES: Final[Fields] = {"continue_final_message": True, "add_generation_prompt": False}
"""Understood by vLLM, SGLang and our engine. The second is true by default, which would contradict the first."""
_TOOL_CHANGES: Final = ("tool_addition", "tool_removal")
"""Blocks that change the tools from there on. Chats offer one list of tools: what is left at the end."""
_TOOL_FOUND: Final = "tool_reference"
_SILENT: Final = ("redacted_thinking", "fallback")
"""Blocks of an answer that say nothing. The second marks where another model went on."""
_BILLING_LINE: Final = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")

_BOUND: Final = {
    "mcp_servers": "an MCP server's tools run at the provider; this model cannot call them",
    "compaction": "only Anthropic's models summarise conversations this way",
    "inference_geo": "the region of computation can only be chosen at Anthropic",
    "billing_policy": "who is billed can only be chosen at Anthropic",
}
"""Fields that cannot be dropped without changing the answer, or breaking a restriction."""


def _invalid(param: str, why: str) -> UpstreamRejected:
    """The error for a request that is invalid for any backend."""
    return UpstreamRejected(f"{param}: {why}", body=messages_error(400, f"{param}: {why}"))


def _unsayable(param: str, why: str, details: Fields | None = None) -> Untranslatable:
    """The error for a request that only Anthropic's models can serve. `details` are for clients that react to them."""
    return Untranslatable(f"{param}: {why}", body=messages_error(400, f"{param}: {why}", details=details))


def chat_body_from_messages(
    body: bytes,
    *,
    keeps_cache_marks: bool = False,
    continues_last: bool = False,
    thoughts: tuple[str, ...] = (),
    reasons: bool = False,
) -> bytes:
    """The equivalent OpenAI chat body. `cache_control`, continuation of the last assistant message, past reasoning
    (under the names in `thoughts`) and effort are included only for backends known to accept them: others reject
    unknown fields. Raises UpstreamRejected, in Anthropic's format; Untranslatable if other backends could serve it."""
    fields = decode_object(body)
    if fields is None:
        raise _invalid("body", "must be a JSON object")
    _refuse_bound(fields)
    limit = _limit(fields)
    if not isinstance(fields.get("model"), str):
        raise _invalid("model", "must be a string")
    messages = [name_thoughts(message, thoughts) for message in _messages(fields)]
    if not messages:
        raise _invalid("messages", "all of them are empty; send at least one text")
    chat: Fields = {"model": fields["model"], "messages": messages, "max_tokens": limit}
    last = messages[-1]
    if continues_last and last["role"] == "assistant" and last["content"] and "tool_calls" not in last:
        chat |= _CONTINUES
    for name in ("temperature", "top_p"):
        if fields.get(name) is not None:
            chat[name] = _share(fields, name)
    if stop := _list(fields, "stop_sequences"):
        if not all(isinstance(item, str) for item in stop):
            raise _invalid("stop_sequences", "must be strings")
        chat["stop"] = stop
    if fields.get("stream") is True:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    user = user_of_chat(text_of(part_of(fields, "metadata"), "user_id") or "")
    tools = _tools(fields)
    optional: Fields = {"user": user, "tools": tools, "response_format": _response_format(fields)}
    if reasons:
        optional["reasoning_effort"] = _EFFORTS.get(text_of(part_of(fields, "output_config"), "effort") or "")
    if not keeps_cache_marks:
        _unmark(messages, tools)
    return msgspec.json.encode(chat | _tool_choice(fields) | {name: value for name, value in optional.items() if value})


def _refuse_bound(fields: Fields) -> None:
    for name, why in _BOUND.items():
        if fields.get(name):
            raise _unsayable(name, why)
    if part_of(fields, "thread").get("type", "create") != "create":
        why = "earlier messages are stored at Anthropic; send the whole conversation, or use one of its models"
        raise _unsayable("thread", why, {"error_code": "thread_not_found"})


def _limit(fields: Fields) -> int:
    limit = fields.get("max_tokens")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise _invalid("max_tokens", "must be a positive integer")
    if not limit:
        raise _unsayable("max_tokens", "0, which only fills a prompt cache, needs one of Anthropic's models")
    return limit


def keeps_reasoning(body: bytes) -> bool:
    """Whether the caller can handle unreadable thinking blocks and use them in a later turn: it asks for thinking, or
    has tools. Other callers expect the first block of an answer to be its text."""
    fields = decode_object(body) or {}
    return bool(fields.get("tools")) or part_of(fields, "thinking").get("type", "disabled") != "disabled"


def chat_messages(message: Fields) -> list[Fields]:
    """One message as a chat's. Raises as `chat_body_from_messages`."""
    return [name_thoughts(said, ()) for said in _messages({"messages": [message]})]


def own_name(body: bytes, sent: str) -> str:
    """The caller's own name of a function that the chat may have renamed."""
    if not may_be_renamed(sent):
        return sent
    fields = decode_object(body) or {}
    blocks = [block for message in objects_of(fields.get("messages")) for block in objects_of(message.get("content"))]
    added = [part_of(part_of(block, "tool"), "definition") for block in blocks]
    names = own_names(name for tool in (*objects_of(fields.get("tools")), *added) if (name := text_of(tool, "name")))
    return names.get(sent, sent)


def _messages(fields: Fields) -> Iterator[Fields]:
    yield from _system(fields)
    messages = _list(fields, "messages")
    if not messages:
        raise _invalid("messages", "needs at least one message")
    for place, item in enumerate(messages):
        where = f"messages[{place}]"
        message = _object(item, where)
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise _invalid(f"{where}.role", "must be user or assistant")
        if isinstance(content, str):
            yield {"role": role, "content": content}
            continue
        if content is None and role == "system":  # only changes the effort from here on
            continue
        blocks = [_object(block, f"{where}.content") for block in _list(message, "content", where)]
        blocks = [block for block in blocks if block.get("type") not in _TOOL_CHANGES]
        yield from _assistant(blocks, where) if role == "assistant" else _user(cast(str, role), blocks, where)


def without_billing_line(system: str) -> str:
    """The system text without the first line that some agents add for Anthropic's billing. The line differs by
    conversation or request, so a prompt cache could not match anything after it."""
    return _BILLING_LINE.sub("", system)


def _system(fields: Fields) -> Iterator[Fields]:
    system = fields.get("system")
    if isinstance(system, str):
        content: object = without_billing_line(system)
    else:
        parts = [_text_part(block, "system") for block in _list(fields, "system")]
        if parts:
            first = without_billing_line(cast(str, parts[0]["text"]))
            parts = [parts[0] | {"text": first}, *parts[1:]] if first else parts[1:]
        content = parts
    if content:
        yield {"role": "system", "content": content}


def _assistant(blocks: list[Fields], where: str) -> Iterator[Fields]:
    text: list[str] = []
    thought: list[str] = []
    calls: list[Fields] = []
    details: list[Fields] = []
    for place, block in enumerate(blocks):
        kind = block.get("type")
        if kind == "text":
            text.append(text_of(block, "text") or "")
        elif kind == "tool_use":
            arguments = msgspec.json.encode(block.get("input") or {}).decode()
            name = name_for_chats(_named(block, "name", f"{where}.content"))
            function = {"name": name, "arguments": arguments}
            calls.append({"id": _named(block, "id", f"{where}.content"), "type": "function", "function": function})
        elif kind == "thinking":  # the signature is dropped unless we wrote it: no other provider can read it
            thought.append(text_of(block, "thinking") or "")
            if is_carried(signature := block.get("signature")):
                details.append(detail_of(cast(str, signature), place))
        elif kind not in _SILENT:
            raise _unsayable(f"{where}.content", f"a block of type {kind!r} cannot be sent to this model")
    thinking = "\n\n".join(filter(None, thought))
    message: Fields = {"role": "assistant", "content": "".join(text) or None, THOUGHT: thinking}
    message |= {DETAILS: details} if details else {}
    if calls:
        yield message | {"tool_calls": calls}
    elif text:
        yield message


def _user(role: str, blocks: list[Fields], where: str) -> Iterator[Fields]:
    """A message for each tool result, as chats require, then one with all other blocks."""
    parts: list[Fields] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            text, media = _tool_result(block, where)
            cache = block.get("cache_control")
            content = [{"type": "text", "text": text, "cache_control": cache}] if isinstance(cache, dict) else text
            yield {"role": "tool", "tool_call_id": _named(block, "tool_use_id", f"{where}.content"), "content": content}
            parts += media
        else:
            context = text_of(block, "context") if block.get("type") == "document" else None
            if context:
                parts.append({"type": "text", "text": context})
            parts.append(_part(block, where))
    if parts:
        yield {"role": role, "content": parts}


def _tool_result(block: Fields, where: str) -> tuple[str, list[Fields]]:
    """(the result's text, its images). Only user messages may have images, so these go into the one that follows."""
    content = block.get("content")
    failed = "Error: " if block.get("is_error") is True else ""
    if content is None or isinstance(content, str):
        return failed + (content or ""), []
    items = [_object(item, f"{where}.content") for item in _list(block, "content", where)]
    text = "".join(text_of(item, "text") or "" for item in items if item.get("type") == "text")
    found = [_tool_found(item, where) for item in items if item.get("type") == _TOOL_FOUND]
    media = [_part(item, where) for item in items if item.get("type") not in ("text", _TOOL_FOUND)]
    return failed + "\n".join(filter(None, (text, *found))), media


def _tool_found(item: Fields, where: str) -> str:
    """What a client's search of tools found. Chats offer them all."""
    return f"The tool {name_for_chats(_named(item, 'tool_name', f'{where}.content'))} can be called."


def _part(block: Fields, where: str) -> Fields:
    kind = block.get("type")
    if kind == "text":
        return _text_part(block, where)
    if kind == "search_result":
        return {"type": "text", "text": _search_result(block, where)}
    if kind not in ("image", "document"):
        raise _unsayable(f"{where}.content", f"a block of type {kind!r} cannot be sent to this model")
    source = part_of(block, "source")
    if source.get("type") == "file":
        raise _unsayable(f"{where}.content", "a file id is not valid for this model; send the content")
    if source.get("type") in ("text", "content"):
        is_text = source.get("type") == "text"
        text = (text_of(source, "data") or "") if is_text else _plain(dict(source), f"{where}.content")
        return {"type": "text", "text": "\n".join(filter(None, (text_of(block, "title"), text)))}
    inline = f"data:{source.get('media_type')};base64,{source.get('data')}"
    url = text_of(source, "url") if source.get("type") == "url" else inline
    if source.get("type") not in ("url", "base64") or not url:
        raise _invalid(f"{where}.content", "its source must be base64, url or text")
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if source.get("type") == "url":
        raise _unsayable(f"{where}.content", "a document given by its URL cannot be sent to this model")
    return {"type": "file", "file": {"filename": text_of(block, "title") or "document.pdf", "file_data": url}}


def _share(fields: Fields, name: str) -> float:
    value = number(fields, name)
    if value is None or not 0 <= value <= 1:
        raise _invalid(name, "must be a number from 0 to 1")
    return value


def _search_result(block: Fields, where: str) -> str:
    """Its title, source and text, so that an answer can cite it."""
    head = [text for name in ("title", "source") if (text := text_of(block, name))]
    return "\n".join([*head, _plain(block, where)])


def _plain(fields: Fields, where: str) -> str:
    """The text of a `content` that is a string or a list of text blocks."""
    content = fields.get("content")
    if isinstance(content, str):
        return content
    blocks = [_object(block, where) for block in _list(fields, "content", where)]
    if any(block.get("type") != "text" for block in blocks):
        raise _unsayable(where, "only text can be sent to this model here")
    return "".join(text_of(block, "text") or "" for block in blocks)


def _text_part(block: object, where: str) -> Fields:
    fields = _object(block, where)
    text = text_of(fields, "text")
    if text is None:
        raise _invalid(where, "a text block must have a text")
    cache = fields.get("cache_control")
    part: Fields = {"type": "text", "text": text}
    return part | ({"cache_control": cache} if isinstance(cache, dict) else {})


def _tools(fields: Fields) -> list[Fields]:
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(_list(fields, "tools"))]
    known = {_name_of(tool): tool for tool in tools}
    for place, item in enumerate(_list(fields, "messages")):
        for block in objects_of(cast(Fields, item).get("content")):
            if (kind := block.get("type")) not in _TOOL_CHANGES:
                continue
            change = part_of(block, "tool")
            name = name_for_chats(text_of(change, "name") or "")
            if "definition" in change:
                defined = _tool(change["definition"], f"messages[{place}].content")
                name = _name_of(defined)
                known[name] = defined
            tools = [tool for tool in tools if _name_of(tool) != name]
            if kind == "tool_addition" and name in known:
                tools.append(known[name])
    return tools


def _name_of(tool: Fields) -> str:
    return text_of(part_of(tool, "function"), "name") or ""


def _tool(tool: object, where: str) -> Fields:
    fields = _object(tool, where)
    if fields.get("type") not in (None, "custom"):
        raise _unsayable(f"{where}.type", "a tool that runs at the provider cannot be sent to this model")
    schema = _object(fields.get("input_schema") or {"type": "object"}, f"{where}.input_schema")
    function: Fields = {"name": name_for_chats(_named(fields, "name", where)), "parameters": for_openai(schema)}
    if isinstance(fields.get("description"), str):
        function["description"] = fields["description"]
    if fields.get("strict") is True and _is_strict(schema):
        function["strict"] = True
    made: Fields = {"type": "function", "function": function}
    return made | ({"cache_control": fields["cache_control"]} if isinstance(fields.get("cache_control"), dict) else {})


def _unmark(messages: list[Fields], tools: list[Fields]) -> None:
    """Removes cache marks. A tool result that was in parts only for its mark becomes plain text again."""
    for tool in tools:
        tool.pop("cache_control", None)
    for message in messages:
        content = message["content"]
        for part in cast(list[Fields], content) if isinstance(content, list) else []:
            part.pop("cache_control", None)
            if message["role"] == "tool":
                message["content"] = part["text"]


def _tool_choice(fields: Fields) -> Fields:
    choice = part_of(fields, "tool_choice")
    kind = choice.get("type")
    if kind is None:
        return {}
    parallel: Fields = {"parallel_tool_calls": False} if choice.get("disable_parallel_tool_use") is True else {}
    if kind == "tool":
        name = text_of(choice, "name")
        function = {"name": name_for_chats(name) if name else name}
        return {"tool_choice": {"type": "function", "function": function}} | parallel
    if not isinstance(kind, str) or kind not in _CHOICES:
        raise _invalid("tool_choice.type", "must be auto, any, tool or none")
    return {"tool_choice": _CHOICES[kind]} | parallel


def _response_format(fields: Fields) -> Fields | None:
    wanted = part_of(part_of(fields, "output_config"), "format") or part_of(fields, "output_format")
    if wanted.get("type") != "json_schema":
        return None
    schema = wanted.get("schema")
    asked: Fields = {"name": "answer", "schema": schema, "strict": _is_strict(schema)}
    return {"type": "json_schema", "json_schema": asked}


def _is_strict(schema: object) -> bool:
    """Whether OpenAI accepts the schema as strict: it rejects optional members, which Anthropic allows."""
    try:
        return is_strict(schema)
    except RecursionError:
        return False


def _named(fields: Fields, name: str, where: str) -> str:
    if not (value := text_of(fields, name)):
        raise _invalid(f"{where}.{name}", "must be a non-empty string")
    return value


def _object(value: object, where: str) -> Fields:
    if not isinstance(value, dict):
        raise _invalid(where, "must be an object")
    return cast(Fields, value)


def _list(fields: Fields, name: str, where: str = "") -> list[object]:
    value = fields.get(name)
    if value is None and not where:
        return []
    if not isinstance(value, list):
        raise _invalid(f"{where}.{name}" if where else name, "must be a list")
    return cast(list[object], value)
