"""Translates a request of Anthropic's Messages API to an OpenAI chat body. Pure.

messages_events.py translates the answer. docs/translation.md lists what is lost.
"""

from typing import Final, cast

import msgspec

from backends.endpoints.messages_blocks import messages_of
from backends.endpoints.messages_fields import invalid, list_of, share_of, unsayable
from backends.endpoints.messages_tools import is_strict_schema, tool_choice, tools_of
from backends.formats.efforts import effort_of_budget
from backends.formats.json_objects import Fields, decode_object, integer, part_of, text_of
from backends.formats.past_thinking import name_thoughts
from backends.formats.user_ids import user_of_chat

_EFFORTS: Final = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
"""Only some of OpenAI's models accept `max`."""
_CONTINUES: Final[Fields] = {"continue_final_message": True, "add_generation_prompt": False}
"""Understood by vLLM, SGLang and our engine. The second is true by default, which would contradict the first."""

_ALIKE: Final = ("", "auto", "standard_only")
"""Anthropic's own service tiers, which are billed alike."""
_BOUND: Final = {
    "mcp_servers": "an MCP server's tools run at the provider; this model cannot call them",
    "compaction": "only Anthropic's models summarise conversations this way",
    "inference_geo": "the region of computation can only be chosen at Anthropic",
    "billing_policy": "who is billed can only be chosen at Anthropic",
}
"""Fields that cannot be dropped without changing the answer, or breaking a restriction."""


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
        raise invalid("body", "must be a JSON object")
    _refuse_bound(fields)
    limit = _limit(fields)
    if not isinstance(fields.get("model"), str):
        raise invalid("model", "must be a string")
    messages = [name_thoughts(message, thoughts) for message in messages_of(fields)]
    if not messages:
        raise invalid("messages", "all of them are empty; send at least one text")
    chat: Fields = {"model": fields["model"], "messages": messages, "max_tokens": limit}
    last = messages[-1]
    if continues_last and last["role"] == "assistant" and last["content"] and "tool_calls" not in last:
        chat |= _CONTINUES
    for name in ("temperature", "top_p"):
        if fields.get(name) is not None:
            chat[name] = share_of(fields, name)
    if stop := list_of(fields, "stop_sequences"):
        if not all(isinstance(item, str) for item in stop):
            raise invalid("stop_sequences", "must be strings")
        chat["stop"] = stop
    if fields.get("stream") is True:
        chat |= {"stream": True, "stream_options": {"include_usage": True}}
    user = user_of_chat(text_of(part_of(fields, "metadata"), "user_id") or "")
    tools = tools_of(fields)
    optional: Fields = {
        "user": user,
        "tools": tools,
        "response_format": _response_format(fields),
        "service_tier": tier_beside_anthropics(fields.get("service_tier")),
    }
    if reasons:
        optional["reasoning_effort"] = _effort(fields)
    if not keeps_cache_marks:
        _unmark(messages, tools)
    return msgspec.json.encode(chat | tool_choice(fields) | {name: value for name, value in optional.items() if value})


def tier_beside_anthropics(asked: object) -> str | None:
    """A service tier that another provider knows, as Fireworks's `priority`."""
    return asked if isinstance(asked, str) and asked not in _ALIKE else None


def _effort(fields: Fields) -> str | None:
    if (named := _EFFORTS.get(text_of(part_of(fields, "output_config"), "effort") or "")) is not None:
        return named
    budget = integer(part_of(fields, "thinking"), "budget_tokens")
    return effort_of_budget(budget) if budget else None


def _refuse_bound(fields: Fields) -> None:
    for name, why in _BOUND.items():
        if fields.get(name):
            raise unsayable(name, why)
    if part_of(fields, "thread").get("type", "create") != "create":
        why = "earlier messages are stored at Anthropic; send the whole conversation, or use one of its models"
        raise unsayable("thread", why, {"error_code": "thread_not_found"})


def _limit(fields: Fields) -> int:
    limit = fields.get("max_tokens")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise invalid("max_tokens", "must be a positive integer")
    if not limit:
        raise unsayable("max_tokens", "0, which only fills a prompt cache, needs one of Anthropic's models")
    return limit


def keeps_reasoning(body: bytes) -> bool:
    """Whether the caller can handle unreadable thinking blocks and use them in a later turn: it asks for thinking, or
    has tools. Other callers expect the first block of an answer to be its text."""
    fields = decode_object(body) or {}
    return bool(fields.get("tools")) or part_of(fields, "thinking").get("type", "disabled") != "disabled"


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


def _response_format(fields: Fields) -> Fields | None:
    wanted = part_of(part_of(fields, "output_config"), "format") or part_of(fields, "output_format")
    if wanted.get("type") != "json_schema":
        return None
    schema = wanted.get("schema")
    asked: Fields = {"name": "answer", "schema": schema, "strict": is_strict_schema(schema)}
    return {"type": "json_schema", "json_schema": asked}
