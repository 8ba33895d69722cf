"""Wraps a schema that is not an object in one, and unwraps the answer as it streams. Pure.

With a schema, Gemini can answer with a list or a number; OpenAI and others only with objects.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from backends.formats.json_objects import Fields, part_of

Wrapping = Literal["", "json", "text"]
"""What is wrapped: nothing, JSON, or a JSON string to be decoded (a value of an enum)."""
MEMBER: Final = "answer"
_HEAD: Final = re.compile(rf'\s*\{{\s*"{MEMBER}"\s*:\s*')
_END: Final = " \t\r\n}"
"""Characters that may close the wrapper at the end of an answer. A set, since a regular expression would retry at every
blank (quadratic)."""
_LONGEST_HEAD: Final = 64


def needs_wrapping(schema: Mapping[str, object]) -> bool:
    """Whether the schema is neither an object nor a reference."""
    return not (schema.get("type") == "object" or "properties" in schema or "$ref" in schema)


def wrapped(schema: Mapping[str, object]) -> Fields:
    """The schema of an object that holds the answer; `$defs` stay at the top."""
    inner = {name: one for name, one in schema.items() if name != "$defs"}
    made: Fields = {
        "type": "object",
        "properties": {MEMBER: inner},
        "required": [MEMBER],
        "additionalProperties": False,
    }
    return made | ({"$defs": dict(found)} if (found := part_of(schema, "$defs")) else {})


class Unwrapper:
    """Unwraps the text of an answer, passed piece by piece. Text that does not start with the wrapper stays
    unchanged."""

    def __init__(self, wrapping: Wrapping) -> None:
        self._is_text = wrapping == "text"
        self._is_begun = not wrapping
        self._is_wrapped = self._has_passed = False
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """The text that can be passed on so far."""
        if not self._is_begun:
            text = self._taken() + text
            head = _HEAD.match(text)
            if head is None and len(text) < _LONGEST_HEAD:
                self._held.append(text)
                return ""
            self._is_begun, self._is_wrapped = True, head is not None
            text = text[head.end() if head else 0 :]
        if not self._is_wrapped:
            return text
        said = "" if self._is_text else text.rstrip(_END)
        passed = self._taken() + said if said else ""
        self._held.append(text[len(said) :])
        if not self._has_passed:  # a piece may have ended between the head and a blank
            passed = passed.lstrip()
            self._has_passed = bool(passed)
        return passed

    def end(self, *, is_cut: bool) -> str:
        """The remaining text. An answer that was cut off lacks the wrapper's end."""
        rest = self._taken()
        if not self._is_wrapped or is_cut:
            return rest
        inner = rest.rstrip().removesuffix("}").rstrip()
        return _plain(inner) if self._is_text else inner

    def _taken(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held


def _plain(text: str) -> str:
    try:
        said = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return said if isinstance(said, str) else text
