"""Translates an OpenAI chat body into a Responses API request, for models that cannot serve it as a chat. Pure.

responses_chat.py translates the answer back. docs/translation.md lists what cannot be translated; a test checks it.
Nothing is stored at the provider: encrypted reasoning goes to the caller, who sends it back with the next turn.
"""

from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.formats.answer_schema import JSON_KINDS, schema_in
from backends.formats.cache_breakpoints import NAME as BREAKPOINT
from backends.formats.cache_breakpoints import mark_breakpoints
from backends.formats.call_ids import for_openai
from backends.formats.chat_fields import invalid, list_of, object_of, refuse_unsayable, untranslatable
from backends.formats.json_objects import Fields, decode_object, objects_of, part_of, text_of
from backends.formats.openai_request import is_in_own_words, members_of
from backends.formats.past_thinking import carried_for, details_of, with_details
from backends.formats.sampling import (
    answers_responses_alone,
    caches_at_breakpoints,
    calls_functions_in_chats,
    nearest_effort,
    thinks,
)
from backends.protocol import Call

SAME: Final = (
    "metadata",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)
"""Fields with the same name in both formats."""
LEAST_OUTPUT_TOKENS: Final = 16
"""The Responses API rejects a lower limit, which chat completions accept."""
_REFUSED_WHILE_IT_THINKS: Final = frozenset({"temperature", "top_p", "logprobs", "top_logprobs"})
_NO_PARAMETERS: Final[Fields] = {"type": "object", "properties": {}}
_FUNCTION: Final = b'"function"'


def is_asked_as_response(call: Call, *, models_think: bool) -> bool:
    """Whether this chat must go over the Responses API. `models_think`: as in Dialect.

    Always for a model that serves no chats. For a model that calls functions in chats only when it does not reason: if
    the chat has functions and the model always reasons, or the caller asks for an effort. A caller who uses OpenAI's
    own name for the model and gives no effort means the model's default.
    """
    model = call.upstream_model
    if answers_responses_alone(model):
        return True
    if not models_think or calls_functions_in_chats(model, "high") or _FUNCTION not in call.body:
        return False
    fields = decode_object(call.body) or {}
    if not any(tool.get("type") == "function" for tool in objects_of(fields.get("tools"))):
        return False
    effort = text_of(fields, "reasoning_effort")
    if is_in_own_words(call, fields.get("model")):
        return not calls_functions_in_chats(model, effort)
    told = nearest_effort(model, effort)
    if told is None:  # no effort asked for: do not reason, if the model can do without
        told = "none"
    return not calls_functions_in_chats(model, told)


def build_response_body(
    call: Call, *, backend: str, models_think: bool, keeps_past: bool = True, tells_summary: bool = True
) -> bytes:
    """The request. `keeps_past`: encrypted reasoning is carried from turn to turn; `tells_summary`: a summary of the
    reasoning is requested when there is an effort. A provider may reject either and still answer without it.

    Raises UpstreamRejected, naming the field; Untranslatable where another model could serve it.
    """
    fields = {name: value for name, value in _fields_of(call).items() if value is not None}
    model = call.upstream_model
    if models_think and caches_at_breakpoints(model):
        mark_breakpoints(objects_of(fields.get("messages")))
    effort = fields.get("reasoning_effort")
    is_known = models_think or answers_responses_alone(model)
    if is_known and not is_in_own_words(call, fields.get("model")):
        effort = nearest_effort(model, effort, in_chat=False) if isinstance(effort, str) else effort
        if thinks(model, effort if isinstance(effort, str) else None):
            fields = {name: value for name, value in fields.items() if name not in _REFUSED_WHILE_IT_THINKS}
    limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
    has_summary = tells_summary and effort not in (None, "none")
    wants_logprobs = fields.get("logprobs") is True
    optional: Fields = {
        "include": ["reasoning.encrypted_content"] * keeps_past + ["message.output_text.logprobs"] * wants_logprobs,
        "max_output_tokens": max(limit, LEAST_OUTPUT_TOKENS) if isinstance(limit, int) else limit,
        "reasoning": ({"effort": effort} if effort else {}) | ({"summary": "auto"} if has_summary else {}),
        "text": _text(fields),
        "tools": list(_tools(fields)),
        "tool_choice": _tool_choice(fields),
        "stream_options": _stream_options(fields) if call.is_stream else None,
    }
    return msgspec.json.encode(
        {
            "model": model,
            "input": list(_items(fields, backend if keeps_past else "")),
            "store": False,
            "stream": call.is_stream,
        }
        | {name: fields[name] for name in SAME if name in fields}
        | {name: value for name, value in optional.items() if value}
    )


def _fields_of(call: Call) -> Fields:
    """Raises UpstreamRejected."""
    members_of(call.body)  # rejects a body that two parsers could read differently
    fields = decode_object(call.body) or {}
    refuse_unsayable(fields)
    if fields.get("stop"):
        raise untranslatable("stop", "this model does not support stop sequences; leave them out, or use another model")
    return fields


def _stream_options(fields: Fields) -> Fields:
    options = part_of(fields, "stream_options")
    return {name: options[name] for name in ("include_obfuscation",) if name in options}


def _text(fields: Fields) -> Fields:
    said: Fields = {"format": form} if (form := _format(fields.get("response_format"))) else {}
    return said | ({"verbosity": fields["verbosity"]} if "verbosity" in fields else {})


def _format(wanted: object) -> Fields | None:
    if wanted is None:
        return None
    form = object_of(wanted, "response_format")
    kind, schema = form.get("type"), schema_in(form)
    if kind == "text":
        return None
    if kind not in JSON_KINDS:
        raise invalid("response_format", "must be text, json_object or json_schema")
    if schema is None:
        return {"type": "json_object"}
    described = part_of(form, "json_schema")
    said = {name: described[name] for name in ("description", "strict") if described.get(name) is not None}
    return {"type": "json_schema", "name": text_of(described, "name") or "answer", "schema": schema, **said}


def _tools(fields: Fields) -> Iterator[Fields]:
    for place, item in enumerate(list_of(fields.get("tools"), "tools")):
        where = f"tools[{place}]"
        tool = object_of(item, where)
        if tool.get("type") == "function":
            yield _function(object_of(tool.get("function"), f"{where}.function"))
        elif tool.get("type") == "custom":
            yield custom_of_response(object_of(tool.get("custom"), f"{where}.custom"))
        else:
            raise untranslatable(f"{where}.type", "must be a function or a custom tool")
    for place, item in enumerate(list_of(fields.get("functions"), "functions")):
        yield _function(object_of(item, f"functions[{place}]"))


def _function(function: Fields) -> Fields:
    """Always states `strict`, whose default differs: false in chats, true in the Responses API."""
    said: Fields = {"description": function["description"]} if function.get("description") is not None else {}
    parameters = function.get("parameters")
    return {
        "type": "function",
        "name": function.get("name"),
        **said,
        "parameters": _NO_PARAMETERS if parameters is None else parameters,
        "strict": function.get("strict") is True,
    }


def custom_of_response(custom: Fields) -> Fields:
    """A chat's custom tool as the Responses API has it."""
    said = {name: custom[name] for name in ("name", "description") if custom.get(name) is not None}
    form = part_of(custom, "format")
    if not form:
        return {"type": "custom", **said}
    return {"type": "custom", **said, "format": {"type": form.get("type"), **part_of(form, "grammar")}}


def _tool_choice(fields: Fields) -> object:
    choice = fields.get("tool_choice", fields.get("function_call"))
    if not isinstance(choice, dict):
        return choice
    named = cast(Fields, choice)
    if named.get("type") != "allowed_tools":
        return _named(named)
    allowed = object_of(named.get("allowed_tools"), "tool_choice.allowed_tools")
    where = "tool_choice.allowed_tools.tools"
    tools = [_named(object_of(tool, where)) for tool in list_of(allowed.get("tools"), where)]
    return {"type": "allowed_tools", "mode": allowed.get("mode"), "tools": tools}


def _named(tool: Fields) -> Fields:
    """A reference to a tool by name; `function_call` holds the name alone."""
    kind = text_of(tool, "type") or "function"
    name = part_of(tool, kind).get("name") or tool.get("name")
    return {"type": kind, "name": name}


def _items(fields: Fields, backend: str) -> Iterator[Fields]:
    """The conversation, with the reasoning that this backend's provider encrypted; none if `backend` is empty."""
    messages = list_of(fields.get("messages"), "messages")
    if not messages:
        raise invalid("messages", "needs at least one message")
    customs: set[str] = set()
    for place, item in enumerate(messages):
        where = f"messages[{place}]"
        message = object_of(item, where)
        role = message.get("role")
        if role in ("system", "developer", "user"):
            yield {"type": "message", "role": role, "content": _content(message.get("content"), f"{where}.content")}
        elif role == "assistant":
            said = [*_said(message, where), *_calls(message, where, customs)]
            yield from _with_thoughts(said, message, backend)
        elif role in ("tool", "function"):
            call_id = text_of(message, "tool_call_id") or text_of(message, "name")
            if call_id is None:
                raise invalid(f"{where}.tool_call_id", "must name the call that this answers")
            kind = "custom_tool_call_output" if call_id in customs else "function_call_output"
            output = _output(message.get("content"), f"{where}.content")
            yield {"type": kind, "call_id": for_openai(call_id), "output": output}
        else:
            raise invalid(f"{where}.role", "must be system, developer, user, assistant or tool")


def _with_thoughts(said: list[Fields], message: Fields, backend: str) -> list[Fields]:
    """An answer's items, each preceded by its reasoning. An answer without items gets none: OpenAI rejects reasoning
    that no item follows."""
    thoughts: list[tuple[int, Fields]] = [
        (place, {"type": "reasoning", "summary": [], "encrypted_content": encrypted})
        for place, carried in details_of(message)
        if (encrypted := carried_for(backend, carried)) is not None
    ]
    return with_details(said, thoughts, before_last=True) if said else said


def _said(message: Fields, where: str) -> Iterator[Fields]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        text = content or ""
    else:
        parts = [object_of(part, f"{where}.content") for part in list_of(content, f"{where}.content")]
        text = "".join(text_of(part, "text") or text_of(part, "refusal") or "" for part in parts)
    if text := text or text_of(message, "refusal") or "":
        yield {"type": "message", "role": "assistant", "content": text}
    elif message.get("audio"):
        raise untranslatable(f"{where}.audio", "spoken answers cannot be sent to this model; send the transcript")


def _calls(message: Fields, where: str, customs: set[str]) -> Iterator[Fields]:
    """The tool calls of an answer; adds the ids of custom tools' calls to `customs`."""
    calls = list_of(message.get("tool_calls"), f"{where}.tool_calls")
    if isinstance(message.get("function_call"), dict):
        calls = [*calls, {"type": "function", "function": message["function_call"]}]
    for place, item in enumerate(calls):
        here = f"{where}.tool_calls[{place}]"
        call = object_of(item, here)
        kind = "custom" if call.get("type") == "custom" else "function"
        called = object_of(call.get(kind), f"{here}.{kind}")
        name = text_of(called, "name") or ""
        call_id = text_of(call, "id") or name
        head: Fields = {"type": f"{kind}_call", "call_id": for_openai(call_id), "name": name}
        if kind == "custom":
            customs.add(call_id)
            yield head | {"type": "custom_tool_call", "input": text_of(called, "input") or ""}
        else:
            yield head | {"arguments": text_of(called, "arguments") or "{}"}


def _content(content: object, where: str) -> object:
    if content is None or isinstance(content, str):
        return content or ""
    return [
        _part(object_of(part, f"{where}[{place}]"), f"{where}[{place}]")
        for place, part in enumerate(list_of(content, where))
    ]


def _output(content: object, where: str) -> object:
    """A tool's output, as a single string if it is nothing but text."""
    said = _content(content, where)
    if isinstance(said, str):
        return said
    parts = cast(list[Fields], said)
    if any(part.keys() != {"type", "text"} for part in parts):
        return parts
    return "".join(cast(str, part["text"]) for part in parts)


def _part(part: Fields, where: str) -> Fields:
    kind = part.get("type")
    mark: Fields = {BREAKPOINT: part[BREAKPOINT]} if part.get(BREAKPOINT) is not None else {}
    if kind == "text":
        return {"type": "input_text", "text": text_of(part, "text") or "", **mark}
    if kind == "image_url":
        image = part.get("image_url")
        shown = {"url": image} if isinstance(image, str) else object_of(image, f"{where}.image_url")
        return {
            "type": "input_image",
            "image_url": shown.get("url"),
            "detail": text_of(shown, "detail") or "auto",
            **mark,
        }
    if kind == "file":
        file = object_of(part.get("file"), f"{where}.file")
        said = {name: file[name] for name in ("file_data", "file_id", "filename") if file.get(name) is not None}
        return {"type": "input_file", **said, **mark}
    if kind == "input_audio":
        raise untranslatable(f"{where}.type", "this model does not accept audio")
    raise untranslatable(f"{where}.type", "unknown part")
