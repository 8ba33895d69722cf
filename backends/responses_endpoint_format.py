"""OpenAI's Responses as an endpoint in front of any backend: the request as an OpenAI chat body. Pure.

The way back is responses_endpoint_events.py. What is lost on the way is listed in docs/backends.md.
"""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.chat_fields import invalid, list_of, object_of, untranslatable
from backends.json_objects import Fields, decode_object, part_of, text_of

SAME: Final = (
    "model",
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "service_tier",
    "metadata",
)
"""Fields that are called the same in both."""
LOGPROBS: Final = "message.output_text.logprobs"
"""How `include` asks for them."""
KEPT_ELSEWHERE: Final = ("previous_response_id", "conversation", "prompt", "background")
"""Fields that lean on what one provider keeps."""


def chat_body_from_responses(body: bytes) -> bytes:
    """An OpenAI chat body that asks the same. Raises UpstreamRejected, naming the field; Untranslatable where other
    backends could be asked it."""
    fields = decode_object(body)
    if fields is None:
        raise invalid("body", "must be a JSON object")
    for name in KEPT_ELSEWHERE:
        if fields.get(name):
            raise untranslatable(name, "is kept at a provider; ask a model whose provider offers the Responses API")
    if fields.get("moderation"):
        raise untranslatable("moderation", "only OpenAI moderates an answer on the way; ask one of its models")
    chat: Fields = {name: fields[name] for name in SAME if fields.get(name) is not None}
    chat["messages"] = list(_messages(fields))
    if not chat["messages"]:
        raise invalid("input", "needs at least one item")
    if fields.get("stream") is True:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    text = part_of(fields, "text")
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(list_of(fields.get("tools"), "tools"))]
    choice = fields.get("tool_choice")
    allowed = cast(Fields, choice) if isinstance(choice, dict) and choice.get("type") == "allowed_tools" else None
    optional: Fields = {
        "max_tokens": fields.get("max_output_tokens"),
        "tools": tools if allowed is None else _allowed(tools, allowed),
        "tool_choice": _tool_choice(choice if allowed is None else allowed.get("mode") or choice),
        "response_format": _response_format(part_of(text, "format")),
        "verbosity": text.get("verbosity"),
        "reasoning_effort": part_of(fields, "reasoning").get("effort"),
    }
    if isinstance(fields.get("top_logprobs"), int):
        optional |= {"logprobs": True, "top_logprobs": fields["top_logprobs"]}
    elif LOGPROBS in list_of(fields.get("include"), "include"):
        optional["logprobs"] = True
    return msgspec.json.encode(chat | {name: value for name, value in optional.items() if value})


def _messages(fields: Fields) -> Iterator[Fields]:
    if instructions := text_of(fields, "instructions"):
        yield {"role": "system", "content": instructions}
    given = fields.get("input")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    calls: list[Fields] = []
    for place, item in enumerate(list_of(given, "input")):
        where = f"input[{place}]"
        fields = object_of(item, where)
        kind = fields.get("type", "message")
        if kind == "function_call":
            function = {"name": fields.get("name"), "arguments": fields.get("arguments")}
            calls.append({"id": fields.get("call_id"), "type": "function", "function": function})
            continue
        if kind == "reasoning":  # means nothing to another provider
            continue
        if calls:
            yield {"role": "assistant", "content": None, "tool_calls": calls}
            calls = []
        yield _message(fields, str(kind), where)
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}


def _message(fields: Fields, kind: str, where: str) -> Fields:
    if kind == "function_call_output":
        output = fields.get("output")
        parts = [] if isinstance(output, str) else list(_parts(output, f"{where}.output"))
        content = output if isinstance(output, str) else parts
        return {"role": "tool", "tool_call_id": fields.get("call_id"), "content": content}
    if kind != "message":
        raise untranslatable(f"{where}.type", f"an item of type {kind!r} cannot be sent to this model")
    role, content = fields.get("role"), fields.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        raise invalid(f"{where}.role", "must be user, assistant, system or developer")
    # Many backends know no developer.
    role = "system" if role == "developer" else role
    if isinstance(content, str):
        return {"role": role, "content": content}
    parts = list(_parts(content, f"{where}.content"))
    if role == "assistant":
        return {"role": role, "content": "".join(text_of(part, "text") or "" for part in parts)}
    return {"role": role, "content": parts}


def _parts(content: object, where: str) -> Iterator[Fields]:
    for place, item in enumerate(list_of(content, where)):
        here = f"{where}[{place}]"
        part = object_of(item, here)
        kind = part.get("type")
        if kind in ("input_text", "output_text", "text"):
            yield {"type": "text", "text": text_of(part, "text") or ""}
        elif kind == "refusal":
            yield {"type": "text", "text": text_of(part, "refusal") or ""}
        elif kind == "input_image" and (url := text_of(part, "image_url")):
            detail = part.get("detail")
            yield {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}
        elif kind == "input_file" and (data := text_of(part, "file_data")):
            yield {"type": "file", "file": {"filename": text_of(part, "filename") or "file", "file_data": data}}
        elif kind == "input_audio":
            yield {"type": "input_audio", "input_audio": part.get("input_audio")}
        else:
            raise untranslatable(here, f"a part of type {kind!r} that is not sent along cannot reach this model")


def _tool(tool: object, where: str) -> Fields:
    fields = object_of(tool, where)
    if fields.get("type") != "function":
        raise untranslatable(f"{where}.type", "only functions can be sent to this model")
    wanted = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: fields[name] for name in wanted if fields.get(name) is not None}}


def _allowed(tools: list[Fields], choice: Fields) -> list[Fields]:
    """The choice among some of the tools is said by leaving the others out."""
    wanted = [
        object_of(tool, "tool_choice.tools").get("name") for tool in list_of(choice.get("tools"), "tool_choice.tools")
    ]
    return [tool for tool in tools if part_of(tool, "function").get("name") in wanted]


def _tool_choice(choice: object) -> object:
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    if not isinstance(choice, dict):
        raise invalid("tool_choice", "must be auto, none, required or an object")
    fields = cast(Fields, choice)
    if fields.get("type") != "function":
        raise untranslatable("tool_choice", "only auto, none, required or a function can be asked of this model")
    name = text_of(fields, "name")
    if not name:
        raise invalid("tool_choice.name", "must be a function's name")
    return {"type": "function", "function": {"name": name}}


def _response_format(wanted: object) -> Fields | None:
    fields = cast(Fields, wanted)
    kind = fields.get("type")
    if kind == "json_schema":
        described = ("name", "description", "schema", "strict")
        return {"type": kind, "json_schema": {name: fields[name] for name in described if fields.get(name) is not None}}
    return {"type": kind} if kind == "json_object" else None
