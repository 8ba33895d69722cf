"""Finds tool calls in streaming text: Hermes and Qwen write tags around JSON, Llama 3 JSON alone, others a mark.

After Mistral's mark follow nothing but calls: a JSON list of them, or, in later models, `name[ARGS]{...}` each with a
mark of its own; after Granite's and Phi's a JSON list. Qwen3-Coder's tags are around a function with a tag for each
argument, which says no type: the tool's schema does. Llama's calls are parted by semicolons, and stand behind a mark
where it said something before them. JSON without any mark is a call only where it names a tool that there is: an answer
may be an object with a name, too.
"""

import json
import re
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Final

from local_engine.text.answer_text import overlap
from local_engine.text.tool_marks import (
    CLOSE,
    LLAMA,
    MISTRAL,
    MISTRAL_ARGUMENTS,
    MISTRAL_ID,
    OPEN,
    PHI,
    PIPED,
    PIPED_CLOSE,
)

FUNCTION: Final = re.compile(r"\s*<function=([^>]+)>(.*?)(?:</function>)?\s*", re.DOTALL)
ARGUMENT: Final = re.compile(r"<parameter=([^>]+)>\n?(.*?)\n?(?:</parameter>|(?=<parameter=)|$)", re.DOTALL)
DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function's name and its arguments as JSON text; Mistral's templates take ids of nine characters alone."""

    name: str
    arguments: str
    has_short_id: bool = False


class ToolCallParser:
    """Splits an answer into plain text and calls. What does not parse as a call is given back as text."""

    def __init__(self, names: Set[str], schemas: Mapping[str, Any] | None = None) -> None:
        """`names` are those of the tools that may be called without a mark, `schemas` what each takes."""
        self._names = names
        self._schemas = schemas or {}
        self._held = ""
        self._is_inside = False
        self._has_begun = False
        self._is_json = False
        # After this one nothing but calls follow.
        self._mark: str | None = None

    def push(self, text: str) -> tuple[str, list[ToolCall]]:
        """Plain text and whole calls that became certain."""
        self._held += text
        if not self._has_begun and self._held.strip():
            self._has_begun = True
            self._is_json = bool(self._names) and self._held.lstrip().startswith("{")
        if self._is_json or self._mark is not None or not self._has_begun:
            return "", []
        return self._advance()

    def finish(self) -> tuple[str, list[ToolCall]]:
        """What is left when the answer ends; a call that was cut short is text."""
        held, self._held = self._held, ""
        if self._is_json or self._mark == LLAMA:
            calls = parse_llama(held)
            is_meant = self._mark == LLAMA or all(call.name in self._names for call in calls)
            return ("", calls) if calls and is_meant else (held, [])
        if self._mark is not None:
            calls = AFTER[self._mark](held)
            return ("", calls) if calls else (self._mark + held, [])
        if self._is_inside and (calls := parse_list(held)):
            return "", calls
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
            elif found_calls := self._read_inside(before):
                calls += found_calls
            else:
                plain += OPEN + before + CLOSE
            self._is_inside = not self._is_inside
        if not self._is_inside:
            plain += self._release()
        return plain, calls

    def _read_inside(self, text: str) -> list[ToolCall]:
        call = parse_call(text) or parse_function(text, self._schemas)
        return parse_list(text) if call is None else [call]

    def _release(self) -> str:
        """Text before a mark after which calls follow, or before what may become a mark."""
        places = [(self._held.find(mark), mark) for mark in MARKS if mark in self._held]
        if places:
            at, self._mark = min(places)
            before, self._held = self._held[:at], self._held[at + len(self._mark) :]
            return before
        keep = max(overlap(self._held, mark) for mark in (OPEN, *MARKS))
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


def parse_list(text: str) -> list[ToolCall]:
    """A JSON list of calls, Phi's closing mark left out; none if any of them is not one."""
    raw = _parse(text.strip().removesuffix(PIPED_CLOSE))
    found = [_read_call(entry) for entry in raw] if isinstance(raw, list) else []
    calls = [call for call in found if call is not None]
    return calls if len(calls) == len(found) else []


def parse_function(text: str, schemas: Mapping[str, Any]) -> ToolCall | None:
    """`<function=name><parameter=key>value</parameter>...</function>`; what is no text by its schema is JSON."""
    whole = FUNCTION.fullmatch(text)
    if whole is None:
        return None
    name = whole[1].strip()
    schema = schemas.get(name)
    known = schema.get("properties") if isinstance(schema, dict) else None
    properties = known if isinstance(known, dict) else {}
    arguments = {key.strip(): _typed(value, properties.get(key.strip())) for key, value in ARGUMENT.findall(whole[2])}
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def _typed(value: str, schema: Any) -> Any:
    """A value as its schema means it: text, unless another type is named and the text is JSON of it."""
    kinds = schema.get("type") if isinstance(schema, dict) else "string"
    if kinds == "string" or (isinstance(kinds, list) and "string" in kinds and value != "null"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        # As Python writes it.
        return {"True": True, "False": False, "None": None}.get(value, value)


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


AFTER: Final[dict[str, Callable[[str], list[ToolCall]]]] = {
    MISTRAL: parse_mistral,
    PIPED: parse_list,
    PHI: lambda held: parse_list(f"[{held}"),
}
MARKS: Final = (*AFTER, LLAMA)
