"""Finds tool calls in streaming text: Hermes and Qwen write tags around JSON, Llama 3 writes JSON alone."""

import json
from dataclasses import dataclass
from typing import Any, Final

from local_engine.answer_text import overlap

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


class ToolCallParser:
    """Splits an answer into plain text and calls. What does not parse as a call is given back as text."""

    def __init__(self) -> None:
        self._held = ""
        self._is_inside = False
        self._has_begun = False
        self._is_json = False

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """Plain text and whole calls that became certain."""
        self._held += text
        if not self._has_begun and self._held.strip():
            self._has_begun = True
            self._is_json = self._held.lstrip().startswith("{")
        if self._is_json or not self._has_begun:
            return "", []
        return self._advance()

    def finish(self) -> tuple[str, list[ToolCall]]:
        """What is left when the answer ends; a call that was cut short is text."""
        held, self._held = self._held, ""
        if self._is_json:
            call = parse_call(held)
            return ("", [call]) if call else (held, [])
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
            keep = overlap(self._held, OPEN)
            plain += self._held[: len(self._held) - keep]
            self._held = self._held[len(self._held) - keep :]
        return plain, calls


def parse_call(text: str) -> ToolCall | None:
    """`{"name": ..., "arguments": {...}}`, or Llama's `parameters`; None for anything else."""
    try:
        raw: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str):
        return None
    arguments = raw.get("arguments", raw.get("parameters", {}))
    return ToolCall(raw["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
