"""Translates an OpenAI chat body to Anthropic's Messages. No IO, no clock. Answers are translated in anthropic.py.

docs/translation.md lists what cannot be translated; a test checks it.
"""

import base64
from collections.abc import Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Final, cast

import msgspec

from backends.formats import schema_subset
from backends.formats.cache_marks import mark_prompt
from backends.formats.call_ids import for_anthropic
from backends.formats.chat_fields import Tool, invalid, untranslatable
from backends.formats.chat_view import ChatView, Media, Part, Text, ToolCall, ToolResult
from backends.formats.json_objects import Fields, integer, number, text_of
from backends.formats.sampling import LEAST_BUDGET, claude_effort, claude_thinking, is_claude, is_older_claude
from backends.formats.schema_subset import OpenObject
from backends.formats.user_ids import user_of_anthropic
from backends.protocol import Call

DEFAULT_MAX_TOKENS: Final = 8192
"""Anthropic requires a limit; this one is sent if the caller gave none."""
DEFAULT_WITH_THOUGHTS: Final = 32_000
"""The same for models that choose how much they think: reasoning counts towards the limit."""
_MOST_STRICT: Final = 20
"""Strict tools of a request."""

_EFFORTS: Final[Mapping[str, str]] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_THINKING_TYPES: Final = ("adaptive", "disabled", "between_tools")
_OTHERS_THINKING: Final = frozenset({"clear_thinking", "keep"})
"""What Z.ai's and Moonshot's `thinking` says about earlier turns, and Anthropic refuses."""
_SUMMARISED: Final[Fields] = {"type": "adaptive", "display": "summarized"}
_SERVICE_TIERS: Final[Mapping[str, str]] = {"auto": "auto", "default": "standard_only"}
_JSON_ONLY: Final = "Answer with one JSON object and nothing else."


def build_messages_body(view: ChatView, call: Call, *, keeps_strict: bool = True) -> bytes:
    """The request in Anthropic's format. Without `keeps_strict`, and if there are too many strict tools, none is
    strict. Raises UpstreamRejected if it cannot be expressed."""
    keeps_strict = keeps_strict and sum(tool.is_strict for tool in view.tools) <= _MOST_STRICT
    messages = _messages(view)
    is_older = is_older_claude(call.upstream_model)
    if not all(sequence.strip() for sequence in view.stop):
        raise untranslatable("stop", "this model does not support stop sequences of white space only; leave them out")
    thinking = _thinking_of_older(view, call.upstream_model, messages[-1]) if is_older else _thinking(view)
    thinks = not is_older or (thinking is not None and thinking.get("type") == "adaptive")
    limit = DEFAULT_WITH_THOUGHTS if thinks else DEFAULT_MAX_TOKENS + _budget(thinking)
    body: Fields = {
        "model": call.upstream_model,
        "max_tokens": view.max_output_tokens or limit,
        "messages": messages,
    }
    system = [block for turn in view.turns if turn.role == "system" for block in _blocks(turn.parts)]
    if view.wants_json and (view.json_schema is None or schema_subset.is_any_object(view.json_schema)):
        system.append({"type": "text", "text": _JSON_ONLY})
    optional: Fields = {
        "system": system,
        "tools": [_tool(tool, keeps_strict=keeps_strict) for tool in view.tools],
        "tool_choice": _tool_choice(view),
        "stop_sequences": list(view.stop),
        "output_config": _output_config(view, call.upstream_model),
        "metadata": {"user_id": user_of_anthropic(user)} if (user := _user(view.fields)) else None,
        "service_tier": _SERVICE_TIERS.get(text_of(view.fields, "service_tier") or ""),
        "cache_control": view.fields.get("cache_control"),
        "thinking": thinking,
        "stream": call.is_stream,
    }
    body |= {name: value for name, value in optional.items() if value}
    if call.cache_marks:
        mark_prompt(body, call.cache_marks, fixed_system=_fixed_system(view, len(system)))
    return msgspec.json.encode(body | (_sampling(view, call.upstream_model, thinking) if is_older else {}))


def _fixed_system(view: ChatView, blocks: int) -> int:
    """How many system blocks come before the first other message; all of them if no later message adds any."""
    leading = list(takewhile(lambda turn: turn.role == "system", view.turns))
    has_later = any(turn.role == "system" for turn in view.turns[len(leading) :])
    return sum(len(_blocks(turn.parts)) for turn in leading) if has_later else blocks


def _user(fields: Fields) -> str | None:
    """`safety_identifier` is OpenAI's successor of `user`."""
    return text_of(fields, "safety_identifier") or text_of(fields, "user")


def _thinking(view: ChatView) -> Fields | None:
    """Newer models choose their own budget, and show their reasoning only on request; a chat with an effort counts as
    one. Not with a forced tool: some models reject thinking then."""
    fields = _asked_thinking(view)
    if fields is not None:
        if fields.get("type") != "enabled" or _is_forced(view):
            return fields if fields.get("type") in _thinking_types(view) else None
        return _SUMMARISED | {name: value for name, value in fields.items() if name not in ("type", "budget_tokens")}
    return None if text_of(view.fields, "reasoning_effort") in (None, "none") or _is_forced(view) else _SUMMARISED


def _asked_thinking(view: ChatView) -> Fields | None:
    asked = view.fields.get("thinking")
    fields = cast(Fields, asked) if isinstance(asked, dict) else None
    return None if fields is None else {name: value for name, value in fields.items() if name not in _OTHERS_THINKING}


def _thinking_types(view: ChatView) -> tuple[str, ...]:
    return ("disabled",) if _is_forced(view) else _THINKING_TYPES


def _is_forced(view: ChatView) -> bool:
    return view.tool_choice == "required" or isinstance(view.tool_choice, tuple)


def _thinking_of_older(view: ChatView, model: str, last: Fields) -> Fields | None:
    """`thinking` in Anthropic's own form only: others' `enabled` has no budget, which Anthropic requires. A budget goes
    with no forced tool, no prefill and no limit as small, and a tool result must follow signed thinking, which no chat
    carries: none is sent in the middle of tool calls. An effort asks for it too."""
    fields = _asked_thinking(view)
    effort = text_of(view.fields, "reasoning_effort")
    if view.fields.get("thinking") is None and effort and last["role"] != "assistant":
        fields = claude_thinking(model, effort, view.max_output_tokens, has_tools=bool(view.tools))
    if fields is None:
        return None
    if fields.get("type") != "enabled":
        return fields if fields.get("type") in _thinking_types(view) else None
    is_amid_calls = any(block["type"] == "tool_result" for block in cast(list[Fields], last["content"]))
    if is_amid_calls or last["role"] == "assistant" or _is_forced(view) or "budget_tokens" not in fields:
        return None
    most = (view.max_output_tokens or 0) - 1
    if most < 0 or _budget(fields) <= most:
        return fields
    return fields | {"budget_tokens": most} if most >= LEAST_BUDGET else None


def _budget(thinking: Fields | None) -> int:
    """The tokens to think with, which count towards the limit."""
    return integer(thinking or {}, "budget_tokens") or 0


def _sampling(view: ChatView, model: str, thinking: Fields | None) -> Fields:
    """Anthropic's temperature goes up to 1, OpenAI's to 2. Claude takes only one of temperature and top_p: of two, the
    temperature, unless it is 1 and has no effect. While it thinks it takes none but a top_p near 1."""
    temperature, top_p = number(view.fields, "temperature"), number(view.fields, "top_p")
    if is_claude(model) and thinking and thinking.get("type") != "disabled":
        return {"top_p": top_p} if top_p is not None and 0.95 <= top_p < 1 else {}
    said: Fields = {}
    if temperature is not None and not (temperature == 1 and top_p is not None):
        said["temperature"] = min(temperature, 1)
    if top_p is not None and not (said and (top_p == 1 or is_claude(model))):
        said["top_p"] = top_p
    return said


def _messages(view: ChatView) -> list[Fields]:
    messages: list[Fields] = []
    for turn in view.turns:
        if turn.role == "system":
            continue
        blocks = _blocks(turn.parts)
        if messages and messages[-1]["role"] == turn.role:
            cast(list[Fields], messages[-1]["content"]).extend(blocks)
        elif blocks:
            messages.append({"role": turn.role, "content": blocks})
    if not messages:
        raise untranslatable("messages", "needs at least one user message")
    for message in messages:  # Anthropic requires tool results before other content
        cast(list[Fields], message["content"]).sort(key=lambda block: block["type"] != "tool_result")
    _end_without_space(messages[-1])
    return messages


def _end_without_space(last: Fields) -> None:
    """Anthropic rejects a prefill that ends in whitespace."""
    block = cast(list[Fields], last["content"])[-1]
    if last["role"] == "assistant" and block["type"] == "text":
        block["text"] = cast(str, block["text"]).rstrip()


def _blocks(parts: tuple[Part, ...]) -> list[Fields]:
    """Drops whitespace-only texts, which models write before a call and Anthropic rejects."""
    return [_block(part) for part in parts if not (isinstance(part, Text) and not part.text.strip())]


def _block(part: Part) -> Fields:
    if isinstance(part, Text):
        return _cached({"type": "text", "text": part.text}, part.cache_control)
    if isinstance(part, ToolCall):
        call: Fields = {
            "type": "tool_use",
            "id": for_anthropic(part.call_id),
            "name": part.name,
            "input": part.arguments,
        }
        return _cached(call, part.cache_control)
    if isinstance(part, ToolResult):
        call_id, content = for_anthropic(part.call_id), _blocks(part.parts)
        result: Fields = {"type": "tool_result", "tool_use_id": call_id, "content": content}
        return _cached(result, part.cache_control)
    if part.kind == "audio":
        raise untranslatable("messages", "this model does not accept audio")
    block: Fields = {"type": part.kind, "source": _source(part)}
    if part.kind == "document" and part.name:
        block["title"] = part.name
    return _cached(block, part.cache_control)


def _source(media: Media) -> Fields:
    if media.url is not None:
        return {"type": "url", "url": media.url}
    if media.kind == "document" and media.media_type.startswith("text/"):
        return {"type": "text", "media_type": "text/plain", "data": _decoded(media.data)}
    return {"type": "base64", "media_type": media.media_type, "data": media.data}


def _decoded(data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except ValueError as error:
        raise invalid("messages", "a text file's data must be base64 of UTF-8 text") from error


def _cached(block: Fields, cache_control: Fields | None) -> Fields:
    return block | {"cache_control": cache_control} if cache_control else block


def _tool(tool: Tool, *, keeps_strict: bool) -> Fields:
    """A strict tool whose schema Anthropic cannot enforce keeps its schema but loses `strict`."""
    parameters = schema_subset.as_one_object(tool.parameters)
    said: Fields = {"name": tool.name, "input_schema": parameters}
    said |= {"description": tool.description} if tool.description else {}
    if tool.is_strict and keeps_strict:
        with suppress(OpenObject, RecursionError):
            said |= {"input_schema": schema_subset.for_anthropic(parameters), "strict": True}
    return _cached(said, tool.cache_control)


def _tool_choice(view: ChatView) -> Fields | None:
    choice = view.tool_choice
    if isinstance(choice, tuple):
        said: Fields = {"type": "tool", "name": choice[1]}
    elif choice is not None:
        said = {"type": {"auto": "auto", "none": "none", "required": "any"}[choice]}
    elif view.parallel_tool_calls is False and view.tools:
        said = {"type": "auto"}
    else:
        return None
    if view.parallel_tool_calls is False and said["type"] != "none":
        said["disable_parallel_tool_use"] = True
    return said


def _output_config(view: ChatView, model: str) -> Fields:
    config: Fields = {}
    if view.json_schema is not None and not schema_subset.is_any_object(view.json_schema):
        config["format"] = {"type": "json_schema", "schema": _answers_schema(view.json_schema)}
    asked = _EFFORTS.get(text_of(view.fields, "reasoning_effort") or "")
    effort = claude_effort(model, asked) if asked else None
    return config | ({"effort": effort} if effort else {})


def _answers_schema(schema: Fields) -> Fields:
    try:
        return schema_subset.for_anthropic(schema, is_root=False)
    except OpenObject as error:
        why = "has an object of any members, of which this model would write none; name its properties"
        raise untranslatable("response_format", why) from error
    except RecursionError as error:
        raise invalid("response_format", "is nested too deeply") from error
