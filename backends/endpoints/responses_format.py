"""Translates a request of OpenAI's Responses API to an OpenAI chat body. Pure.

responses_events.py translates the answer. docs/translation.md lists what is lost.
"""

import re
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.endpoints.responses_compaction import ASK, COMPACTION, TRIGGER, asks_compaction
from backends.endpoints.responses_tools import OFFER, Tools, arguments_of, is_among_some, parse_tools
from backends.errors import Untranslatable, UpstreamRejected
from backends.formats.chat_fields import in_background, invalid, list_of, object_of, parse_object, untranslatable
from backends.formats.json_objects import Fields, part_of, text_of
from backends.formats.past_thinking import THOUGHT, is_our_reasoning, name_thoughts, thought_of
from backends.formats.responses import no_response
from backends.formats.responses_chat import CALLS
from backends.formats.strict_turns import mend_for

SAME: Final = (
    "model",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "parallel_tool_calls",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "service_tier",
    "metadata",
)
"""Fields with the same name in both."""
LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that requests them."""
NOT_KEPT: Final = (
    "is not kept here (kept_answers.response_hours in breakeven.yaml sets for how long any is); have your client send "
    "it in full (store: false), or use a model whose provider offers the Responses API"
)
KEPT_ELSEWHERE: Final = {
    "conversation": "it is not kept here; use a model of the provider that created it",
    "prompt": "prompts are stored only at providers that offer the Responses API",
}
"""Fields that refer to what one provider stores, and the remedy for each."""
NOT_COMPACTED: Final = (
    "only the provider that compacted this conversation can read it; use one of its models, or send the conversation "
    "as it was before"
)
OF_AGENT: Final = "agent_message"
"""What Codex's agents tell each other. It takes every text for encrypted unless it is told otherwise."""
_CIPHERTEXT: Final = "gAAAA"
"""How OpenAI's begins."""
OUTPUTS: Final = ("function_call_output", "custom_tool_call_output")
_SAID: Final = ("namespace", "name", "arguments", "input")
"""Of a call: if all are the same again under its id, it is said again."""


_TAKEN_AS_CHAT: Final = re.compile(
    rb"\btools?[\"'.,\[ ]{1,4}\d|tool type|\bnamespace\b|\bcustom_tool|\badditional_tools\b|\bagent_message\b"
    rb"|output of tool call",
    re.IGNORECASE,
)
"""How llama.cpp, LM Studio, OpenRouter, vLLM and other gateways refuse in a response what Codex sends and a translation
can say in a chat: tools that are no functions, their calls, and images in their outputs."""


def is_taken_as_chat(refusal: UpstreamRejected) -> bool:
    """Whether a server that offers responses may answer as a chat what it refuses so: messages in an order that its
    chats are mended to, what it does not know, or all, if it lacks the endpoint."""
    is_missing = refusal.status in (404, 405) and not refusal.body
    return is_missing or mend_for(refusal.body) is not None or _TAKEN_AS_CHAT.search(refusal.body) is not None


def chat_body_from_responses(
    body: bytes, *, thoughts: tuple[str, ...] = (), takes_effort: bool = True, keeps_custom: bool = False
) -> bytes:
    """The equivalent OpenAI chat body, with past reasoning under the names in `thoughts`, since other backends reject
    it, and the effort if `takes_effort`, since some clients send one to any model. `keeps_custom`: custom tools and
    their calls stay what they are, and do not become functions.
    Raises UpstreamRejected, naming the field; Untranslatable if other backends could serve it."""
    fields = parse_object(body)
    if fields.get("background"):
        raise in_background()
    if previous := fields.get("previous_response_id"):
        raise no_response(str(previous), f"it {NOT_KEPT}", Untranslatable)
    for name, why in KEPT_ELSEWHERE.items():
        if fields.get(name):
            raise untranslatable(name, why)
    if fields.get("moderation"):
        raise untranslatable("moderation", "only OpenAI moderates answers as they are generated; use one of its models")
    chat: Fields = {name: fields[name] for name in SAME if fields.get(name) is not None}
    tools = parse_tools(fields, keeps_custom=keeps_custom)
    chat["messages"] = [name_thoughts(message, thoughts) for message in _shown_apart(_messages(fields, tools))]
    if not chat["messages"]:
        raise invalid("input", "needs at least one item")
    if fields.get("stream") is True:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    text = part_of(fields, "text")
    choice = fields.get("tool_choice")
    if compacts := asks_compaction(fields):
        text, choice = {}, "none"
    functions = tools.functions(choice)
    if not functions:  # many servers refuse both without tools; agents send them with each request
        chat.pop("parallel_tool_calls", None)
        choice = None if choice in ("auto", "none") else choice
    optional: Fields = {
        "max_tokens": fields.get("max_output_tokens"),
        "tools": functions,
        "tool_choice": _tool_choice(choice, tools),
        "response_format": _response_format(part_of(text, "format")),
        "verbosity": text.get("verbosity"),
        "reasoning_effort": part_of(fields, "reasoning").get("effort") if takes_effort else None,
    }
    if isinstance(alternatives := fields.get("top_logprobs"), int) and alternatives and not compacts:
        optional |= {"logprobs": True, "top_logprobs": alternatives}
    elif LOGPROBS in list_of(fields.get("include"), "include") and not compacts:
        optional["logprobs"] = True
    return msgspec.json.encode(chat | {name: value for name, value in optional.items() if value})


def _messages(fields: Fields, tools: Tools) -> Iterator[Fields]:
    if instructions := text_of(fields, "instructions"):
        yield {"role": "system", "content": instructions}
    given = fields.get("input")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
        return
    answer: list[Fields] = []
    thought = ""
    waiting: dict[str | None, set[tuple[str | None, ...]]] = {}
    for place, item in enumerate(list_of(given, "input")):
        where = f"input[{place}]"
        fields = object_of(item, where)
        kind = fields.get("type") or ("message" if "role" in fields else "item_reference")
        if kind == "reasoning":
            thought = thought_of(fields)
            continue
        if kind == OFFER or is_our_reasoning(fields):  # a reference to reasoning that we did not store
            continue
        call_id, said = text_of(fields, "call_id"), tuple(text_of(fields, name) for name in _SAID)
        if kind in CALLS and said in waiting.get(call_id, ()):
            thought = ""  # said again, before its result: LiveKit's agents do so after `previous_response_id`
            continue
        message = _call(fields, tools, where) if kind in CALLS else _message(fields, str(kind), where)
        if kind in CALLS:
            waiting.setdefault(call_id, set()).add(said)
        elif kind in OUTPUTS:
            waiting.pop(call_id, None)
        if thought and message["role"] == "assistant":
            message[THOUGHT] = thought
        thought = ""
        if answer and not _belongs(message, answer):
            yield _joined(answer)
            answer = []
        answer.append(message)
    if answer:
        yield _joined(answer)


def _shown_apart(messages: Iterator[Fields]) -> Iterator[Fields]:
    """Tool results as text only. Only user messages may have images and files, so one with theirs follows the
    results."""
    shown: list[Fields] = []
    for message in messages:
        if shown and message["role"] != "tool":
            yield {"role": "user", "content": shown}
            shown = []
        if message["role"] == "tool" and isinstance(message["content"], list):
            parts = cast(list[Fields], message["content"])
            message["content"] = "".join(text_of(part, "text") or "" for part in parts if part["type"] == "text")
            shown += [part for part in parts if part["type"] != "text"]
        yield message
    if shown:
        yield {"role": "user", "content": shown}


def _belongs(message: Fields, answer: list[Fields]) -> bool:
    """Whether the message is part of the same answer as those before it: a model's calls and the text with them.

    Many backends require a call's result directly after the message with the call, and no two answers in a row.
    """
    is_said = message["role"] == answer[0]["role"] == "assistant"
    return is_said and (len(answer) > 1 or any("tool_calls" in one for one in (*answer, message)))


def _joined(answer: list[Fields]) -> Fields:
    """Merges the messages of one answer."""
    if len(answer) == 1:
        return answer[0]
    content, thought = (
        "\n\n".join(str(text) for one in answer if (text := one.get(name))) for name in ("content", THOUGHT)
    )
    calls = [call for one in answer for call in cast(list[Fields], one.get("tool_calls") or [])]
    return {"role": "assistant", "content": content or None, "tool_calls": calls, THOUGHT: thought}


def _call(fields: Fields, tools: Tools, where: str) -> Fields:
    _require_name(fields, "name", where)
    _require_name(fields, "call_id", where)
    is_custom = fields.get("type") == "custom_tool_call"
    if is_custom and tools.keeps_custom:
        custom = {"name": fields.get("name"), "input": fields.get("input")}
        made: Fields = {"id": fields.get("call_id"), "type": "custom", "custom": custom}
        return {"role": "assistant", "content": None, "tool_calls": [made]}
    arguments = arguments_of(fields.get("input")) if is_custom else fields.get("arguments")
    function = {"name": tools.function_of(fields), "arguments": arguments}
    call = {"id": fields.get("call_id"), "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _require_name(fields: Fields, name: str, where: str) -> None:
    if not text_of(fields, name):
        raise invalid(f"{where}.{name}", "must be a non-empty string")


def _message(fields: Fields, kind: str, where: str) -> Fields:
    if kind in OUTPUTS:
        _require_name(fields, "call_id", where)
        output = fields.get("output")
        parts = [] if isinstance(output, str) else list(_parts(output, f"{where}.output"))
        content = output if isinstance(output, str) else parts
        return {"role": "tool", "tool_call_id": fields.get("call_id"), "content": content}
    if kind == "item_reference":
        raise untranslatable(f"{where}.type", f"the item {NOT_KEPT}")
    if kind == TRIGGER:
        return {"role": "user", "content": ASK}
    if kind == COMPACTION:
        raise untranslatable(f"{where}.type", NOT_COMPACTED)
    if kind == OF_AGENT:
        return {"role": "user", "content": list(_parts(fields.get("content"), f"{where}.content"))}
    if kind != "message":
        raise untranslatable(f"{where}.type", f"an item of type {kind!r} cannot be sent to this model")
    role, content = fields.get("role"), fields.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        raise invalid(f"{where}.role", "must be user, assistant, system or developer")
    # Many backends lack the role `developer`.
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
        elif kind == "encrypted_content" and (text := text_of(part, "encrypted_content")):
            if text.startswith(_CIPHERTEXT):
                raise untranslatable(here, "only OpenAI's models can read what one of them told another agent")
            yield {"type": "text", "text": text}
        elif kind == "input_audio":
            yield {"type": "input_audio", "input_audio": part.get("input_audio")}
        else:
            raise untranslatable(here, f"a part of type {kind!r} without its content cannot be sent to this model")


def _tool_choice(choice: object, tools: Tools) -> object:
    if is_among_some(choice):
        choice = cast(Fields, choice).get("mode") or choice
    if choice is None or choice in ("auto", "none", "required"):
        return choice
    if not isinstance(choice, dict):
        raise invalid("tool_choice", "must be auto, none, required or an object")
    fields = cast(Fields, choice)
    if fields.get("type") not in ("function", "custom"):
        raise untranslatable("tool_choice", "this model supports only auto, none, required or a function")
    if not text_of(fields, "name"):
        raise invalid("tool_choice.name", "must be a function's name")
    kind = "custom" if tools.keeps_custom and fields.get("type") == "custom" else "function"
    return {"type": kind, kind: {"name": tools.function_of(fields)}}


def _response_format(wanted: object) -> Fields | None:
    fields = cast(Fields, wanted)
    kind = fields.get("type")
    if kind == "json_schema":
        described = ("name", "description", "schema", "strict")
        return {"type": kind, "json_schema": {name: fields[name] for name in described if fields.get(name) is not None}}
    return {"type": kind} if kind == "json_object" else None
