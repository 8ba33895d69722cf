"""Whether a whole chat answer passes a cascade's checks: its form, and its model's confidence. Pure.

Form is what a program can check with certainty: the answer is complete and not empty, and it is JSON, fits the schema
or is a tool call if the request asked for one. Correctness, or a polite refusal, cannot be checked by pattern.
"""

import json
import math
from typing import Any

import msgspec

from backends.endpoints.chat_text import end_of
from backends.formats.answer_schema import JSON_KINDS, schema_in
from backends.formats.json_splice import MEMBERS, OBJECTS
from gateway.request.schema_check import allowance, fits
from gateway.routing.rules import Verify

Fields = dict[str, Any]
_CUT = {"length": "cut", "content_filter": "filtered"}


def objection(request: bytes, answer: bytes, verify: Verify) -> str | None:
    """Why the answer fails, in one word; None if it passes.

    `unreadable`, `empty`, `cut`, `filtered`, `not_json`, `off_schema`, `no_tool_call`, `bad_tool_call`,
    `no_logprobs`, `unsure`. If there are several choices, all must pass.
    """
    steps = allowance()
    try:
        asked, choices = json.loads(request), json.loads(answer)["choices"]
        if not choices:
            return "empty"
        for choice in choices:
            word = _form_objection(asked, choice, steps) if verify.format else None
            if word is None and verify.min_mean_logprob is not None:
                word = _logprob_objection(choice, verify.min_mean_logprob)
            if word is not None:
                return word
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError):
        return "unreadable"
    return None


def is_asked_for_logprobs(request: bytes) -> bool:
    """Whether the caller asked for log-probabilities."""
    return bytes(MEMBERS.decode(request).get("logprobs", b"")) == b"true"


def without_logprobs(answer: bytes) -> bytes:
    """The answer with `logprobs` null in every choice that has them; all other values keep their bytes."""
    try:
        fields = MEMBERS.decode(answer)
        choices = OBJECTS.decode(fields["choices"])
    except (msgspec.DecodeError, KeyError):
        return answer  # not a chat answer, so it has none
    for choice in choices:
        if "logprobs" in choice:
            choice["logprobs"] = msgspec.Raw(b"null")
    fields["choices"] = msgspec.Raw(msgspec.json.encode(choices))
    return msgspec.json.encode(fields)


def _form_objection(asked: Fields, choice: Fields, steps: list[int]) -> str | None:
    message: Fields = choice["message"]
    calls = message.get("tool_calls") or ()
    text = message.get("content") or ""
    if word := _CUT.get(end_of(choice.get("finish_reason")) or ""):
        return word
    if calls:
        tools = {tool["function"]["name"]: tool["function"] for tool in asked.get("tools") or () if "function" in tool}
        is_good = all(_is_good_call(asked, tools, call["function"], steps) for call in calls)
        return None if is_good else "bad_tool_call"
    if message.get("function_call"):  # the predecessor of tool calls
        return None
    if _must_call(asked):
        return "no_tool_call"
    if not text.strip():
        return "empty"
    return _json_objection(asked.get("response_format") or {}, text, steps)


def _must_call(asked: Fields) -> bool:
    choice = asked.get("tool_choice")
    return choice == "required" or isinstance(choice, dict)


def _is_good_call(asked: Fields, tools: Fields, called: Fields, steps: list[int]) -> bool:
    """Whether the tool exists, is the one demanded, if any, and the arguments fit its schema."""
    demanded = asked.get("tool_choice")
    if isinstance(demanded, dict) and "function" in demanded and demanded["function"]["name"] != called["name"]:
        return False
    if called["name"] not in tools:
        return False
    try:
        arguments = json.loads(called["arguments"] or "{}")
    except ValueError:
        return False
    return isinstance(arguments, dict) and fits(arguments, tools[called["name"]].get("parameters") or {}, steps)


def _json_objection(form: Fields, text: str, steps: list[int]) -> str | None:
    if form.get("type") not in JSON_KINDS:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return "not_json"
    return None if fits(value, schema_in(form) or {}, steps) else "off_schema"


def _logprob_objection(choice: Fields, least: float) -> str | None:
    """Most providers give no logprobs for tool calls: if a call's form is right, nothing more can be checked."""
    if choice["message"].get("tool_calls"):
        return None
    tokens = (choice.get("logprobs") or {}).get("content")
    if not tokens:
        return "no_logprobs"
    return "unsure" if math.fsum(one["logprob"] for one in tokens) / len(tokens) < least else None
