"""Rewrites turns with tool calls, and tools themselves, for templates without support for them. Knows no tokens."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from local_engine.text.tool_formats import ToolFormat

Message = Mapping[str, Any]
SHORT_ID: Final = re.compile(r"[A-Za-z0-9]{9}")
TOLD: Final = (
    "You may call functions to answer. These there are, each with the JSON schema of what it takes:\n{tools}\n"
    "To call one, write nothing but its name and its arguments, in this form:\n{form}"
)
EXAMPLE: Final = ("name of the function", {"name of an argument": "its value"})
RESULT: Final = "<tool_response>\n{content}\n</tool_response>"


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Mistral's templates accept only ids of nine letters and digits; other ids are hashed to such."""
    return [_with_short_ids(message) for message in messages]


def _with_short_ids(message: Message) -> Message:
    shorter = dict(message)
    if isinstance(one := message.get("tool_call_id"), str):
        shorter["tool_call_id"] = _short(one)
    if "tool_calls" in message:
        shorter["tool_calls"] = [{**call, "id": _short(str(call.get("id")))} for call in calls_of(message)]
    return shorter


def _short(one: str) -> str:
    return one if SHORT_ID.fullmatch(one) else hashlib.sha256(one.encode()).hexdigest()[:9]


def with_written_calls(messages: Sequence[Message], form: ToolFormat) -> list[Message]:
    """Calls as part of the message's text, for a template that omits them."""
    return [_with_written_calls(message, form) for message in messages]


def _with_written_calls(message: Message, form: ToolFormat) -> Message:
    if not (calls := calls_of(message)):
        return message
    written = form.write([(call["function"]["name"], call["function"]["arguments"]) for call in calls])
    said = message.get("content") or ""
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": f"{said}\n{written}" if said else written}


def with_told_tools(messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], form: ToolFormat) -> list[Message]:
    """Tools as part of the system message, for a template that knows none."""
    functions = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    told = TOLD.format(tools=functions, form=form.write([EXAMPLE]))
    if messages and messages[0].get("role") == "system":
        return [{**messages[0], "content": f"{messages[0].get('content') or ''}\n\n{told}".lstrip()}, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]


def with_results_told(messages: Sequence[Message]) -> list[Message]:
    """Results of calls as user turns, for a template without tool turns; adjacent ones are merged."""
    told: list[Message] = []
    said: list[str] = []  # results, and user turns after them, to be merged
    for message in messages:
        is_result = message.get("role") == "tool"
        if is_result:
            said.append(RESULT.format(content=message.get("content") or ""))
        elif said and message.get("role") == "user":
            said.append(str(message.get("content")))
        else:
            told += _said(said)
            said = []
            told.append(message)
    return told + _said(said)


def _said(said: list[str]) -> list[Message]:
    return [{"role": "user", "content": "\n".join(said)}] if said else []


def one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Each call in a separate turn before its result, for a template that accepts only one at a time (Llama 3)."""
    parted: list[Message] = []
    results: list[Message] = []
    calling: Message = {}
    for message in (*messages, {}):
        if message.get("role") == "tool":
            results.append(message)
            continue
        parted += _parted(calling, results) if len(calls_of(calling)) > 1 else [calling, *results]
        calling, results = message, []
    return [message for message in parted if message]


def _parted(message: Message, results: list[Message]) -> list[Message]:
    turns: list[Message] = []
    results_of: dict[str, list[Message]] = {}
    for result in results:
        results_of.setdefault(str(result.get("tool_call_id")), []).append(result)
    for number, call in enumerate(calls_of(message)):
        own = results_of.pop(str(call.get("id")), [])
        turns += [{**message, "tool_calls": [call], "content": message.get("content") if number == 0 else None}, *own]
    return turns + [result for result in results if str(result.get("tool_call_id")) in results_of]


def calls_of(message: Message) -> list[dict[str, Any]]:
    """The calls of a turn."""
    calls = message.get("tool_calls")
    return cast(list[dict[str, Any]], calls) if isinstance(calls, list) else []
