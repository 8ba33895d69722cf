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
    """A member is given in both spellings, and readers may differ in which one they take."""


def members_of(fields: Mapping[str, object]) -> Fields:
    """A message's members with names in lowerCamelCase; null members are left out. Raises NamedTwice."""
    found: Fields = {}
    for name, value in fields.items():
        ours = _PART.sub(_upper, name) if "_" in name else name
        if ours in found:
            raise NamedTwice(f"{name}: is said twice, in two spellings")
        found[ours] = value
    return {name: value for name, value in found.items() if value is not None}


def member_of(fields: Mapping[str, object], name: str) -> Fields:
    """A nested message, empty if absent. Raises NamedTwice."""
    return members_of(part_of(fields, name))


def many_of(value: object) -> object:
    """A repeated field's values: a single value is a list of one, as in Google's own parser."""
    return value if value is None or isinstance(value, list) else [value]


def messages_of(fields: Mapping[str, object], name: str) -> list[Fields]:
    """The messages in a list; other items are skipped. Raises NamedTwice."""
    return [members_of(one) for one in objects_of(many_of(fields.get(name)))]


def whole_number(value: object) -> int | None:
    """An integer as protobuf accepts it: also as a string, or as a float without a fractional part."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else None
    return value if isinstance(value, int) else None


def _upper(found: re.Match[str]) -> str:
    return found[1].upper()
