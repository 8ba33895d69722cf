"""Reads protobuf's JSON, as Google's APIs take it: names in either spelling, whole numbers as numbers or as text. Pure.

https://protobuf.dev/programming-guides/json/
"""

import re
from collections.abc import Mapping
from typing import Final

from backends.formats.json_objects import Fields, objects_of, part_of

_PART: Final = re.compile(r"_([a-z0-9])")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")


class NamedTwice(ValueError):
    """A member stands there in both spellings, and of the two each reader may take another."""


def members_of(fields: Mapping[str, object]) -> Fields:
    """Of one message, its own names in lowerCamelCase; a member that is null is absent. Raises NamedTwice."""
    found: Fields = {}
    for name, value in fields.items():
        ours = _PART.sub(_upper, name) if "_" in name else name
        if ours in found:
            raise NamedTwice(f"{name}: is said twice, in two spellings")
        found[ours] = value
    return {name: value for name, value in found.items() if value is not None}


def member_of(fields: Mapping[str, object], name: str) -> Fields:
    """An inner message, empty where there is none. Raises NamedTwice."""
    return members_of(part_of(fields, name))


def many_of(value: object) -> object:
    """Of a field that may stand there many times: one alone is a list of one, as Google's own parser has it."""
    return value if value is None or isinstance(value, list) else [value]  # pyright: ignore[reportUnknownVariableType]


def messages_of(fields: Mapping[str, object], name: str) -> list[Fields]:
    """The messages in a list, whatever else is in it. Raises NamedTwice."""
    return [members_of(one) for one in objects_of(many_of(fields.get(name)))]


def whole_number(value: object) -> int | None:
    """An integer as protobuf takes it: also as text, and as a number with nothing behind its point."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) else None


def _upper(found: re.Match[str]) -> str:
    return found[1].upper()
