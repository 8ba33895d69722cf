"""Finds tool calls in streaming text: Hermes and Qwen write tags around JSON, Llama 3 JSON alone, Mistral a mark.

After Mistral's mark follow nothing but calls: a JSON list of them, or, in later models, `name[ARGS]{...}` each with a
mark of its own. Llama's calls are parted by semicolons, and stand behind a mark where it said something before them.
JSON without any mark is a call only where it names a tool that there is: an answer may be an object with a name, too.
"""

import json
from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Any, Final

from local_engine.text.answer_text import overlap
from local_engine.text.tool_marks import CLOSE, LLAMA, MISTRAL, MISTRAL_ARGUMENTS, MISTRAL_ID, OPEN

DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments as JSON text; Mistral's templates take ids of nine characters alone."""

    name: str
    arguments: str
    has_short_id: bool = False


class ToolCallParser:
    """Splits an answer into plain text and calls. What does not parse as a call is given back as text."""

    def __init__(self, names: Set[str]) -> None:
        """`names` are those of the tools that may be called without a mark."""
        self._names = names
        self._held = ""
        self._is_inside = False
        self._has_begun = False
        self._is_json = False
        self._is_mistral = False
        self._is_llama = False

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """Plain text and whole calls that became certain."""
        self._held += text
        if not self._has_begun and self._held.strip():
            self._has_begun = True
            self._is_json = bool(self._names) and self._held.lstrip().startswith("{")
        if self._is_json or self._is_mistral or self._is_llama or not self._has_begun:
            return "", []
        return self._advance()

    def finish(self) -> tuple[str, list[ToolCall]]:
        """What is left when the answer ends; a call that was cut short is text."""
        held, self._held = self._held, ""
        if self._is_json or self._is_llama:
            calls = parse_llama(held)
            is_meant = self._is_llama or all(call.name in self._names for call in calls)
            return ("", calls) if calls and is_meant else (held, [])
        if self._is_mistral:
            calls = parse_mistral(held)
            return ("", calls) if calls else (MISTRAL + held, [])
        return (OPEN + held if self._is_inside else held), []

    def _advance(self) -> tuple[str, list[ToolCall]]:
        plain, calls = "", list[ToolCall]()
        while True:
            mark = CLOSE if self._is_inside else OPEN
            before, found, after = self._held.partition(mark)
            if not found:
                break
            self._held = after
            if not self._is_inside:
                plain += before
            elif call := parse_call(before):
                calls.append(call)
            else:
                plain += OPEN + before + CLOSE
            self._is_inside = not self._is_inside
        if not self._is_inside:
            plain += self._release()
        return plain, calls

    def _release(self) -> str:
        """Text before Mistral's mark or Llama's, or before what may become a mark."""
        for mark in (MISTRAL, LLAMA):
            before, found, after = self._held.partition(mark)
            if found:
                self._is_mistral, self._is_llama, self._held = mark == MISTRAL, mark == LLAMA, after
                return before
        keep = max(overlap(self._held, mark) for mark in (OPEN, MISTRAL, LLAMA))
        end = len(self._held) - keep
        plain, self._held = self._held[:end], self._held[end:]
        return plain


def parse_call(text: str) -> ToolCall | None:
    """`{"name": ..., "arguments": {...}}`, or Llama's `parameters`; None for anything else."""
    return _read_call(_parse(text))


def parse_llama(text: str) -> list[ToolCall]:
    """Calls one after another, parted by semicolons; none if anything else is among them."""
    calls: list[ToolCall] = []
    while text := text.lstrip("; \t\r\n"):
        try:
            raw, end = DECODER.raw_decode(text)
        except (ValueError, RecursionError):
            return []
        if (call := _read_call(raw)) is None:
            return []
        calls.append(call)
        text = text[end:]
    return calls


def parse_mistral(text: str) -> list[ToolCall]:
    """All calls after the first mark; none if any of them is not one."""
    raw = _parse(text)
    found = [_read_call(entry) for entry in raw] if isinstance(raw, list) else list(map(_named, text.split(MISTRAL)))
    calls = [replace(call, has_short_id=True) for call in found if call is not None]
    return calls if len(calls) == len(found) else []


def _named(text: str) -> ToolCall | None:
    """`name[ARGS]{...}`, an id of the model's own before the arguments dropped."""
    head, found, arguments = text.partition(MISTRAL_ARGUMENTS)
    name = head.partition(MISTRAL_ID)[0].strip()
    if not found or not name or not isinstance(_parse(arguments), dict):
        return None
    return ToolCall(name, arguments.strip())


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read_call(raw: Any) -> ToolCall | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    arguments = raw.get("arguments", raw.get("parameters", {}))
    return ToolCall(raw["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
