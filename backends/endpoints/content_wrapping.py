"""An answer whose schema is no object, asked for inside of one and taken out again as it comes. Pure.

Gemini answers with a list or a number where it is asked for one; OpenAI and others only with objects.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from backends.formats.json_objects import Fields, part_of

Wrapping = Literal["", "json", "text"]
"""What is inside: nothing of ours, JSON as it is, or a text whose JSON is to be read (one of some words)."""
MEMBER: Final = "answer"
_HEAD: Final = re.compile(rf'\s*\{{\s*"{MEMBER}"\s*:\s*')
_END: Final = " \t\r\n}"
"""What may end an answer, and all that is ours of it stands there: asked for by an expression, each blank was tried."""
_LONGEST_HEAD: Final = 64


def needs_wrapping(schema: Mapping[str, object]) -> bool:
    """Whether it is no object, nor one that it refers to."""
    return not (schema.get("type") == "object" or "properties" in schema or "$ref" in schema)


def wrapped(schema: Mapping[str, object]) -> Fields:
    """The schema of an object with the answer in it; what the schema refers to stays at the top."""
    inner = {name: one for name, one in schema.items() if name != "$defs"}
    made: Fields = {
        "type": "object",
        "properties": {MEMBER: inner},
        "required": [MEMBER],
        "additionalProperties": False,
    }
    return made | ({"$defs": dict(found)} if (found := part_of(schema, "$defs")) else {})


class Unwrapper:
    """Feed it an answer's text piece by piece. What does not begin as it was asked to passes as it is."""

    def __init__(self, wrapping: Wrapping) -> None:
        self._is_text = wrapping == "text"
        self._is_begun = not wrapping
        self._is_wrapped = self._has_passed = False
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        """What of it can be passed on by now."""
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
        if not self._has_passed:  # the head may have been cut before a blank
            passed = passed.lstrip()
            self._has_passed = bool(passed)
        return passed

    def end(self, *, is_cut: bool) -> str:
        """The rest. An answer that was cut off lacks the end that is ours."""
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
