"""Finds the pictures and files that a chat names by their addresses. Pure; fetches nothing."""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from backends.formats.json_objects import objects_of

PICTURE: Final = "image_url"
_SCHEMES: Final = ("http:", "https:")
_SAID: Final = frozenset({"text", "type", "annotations"})
_LONGEST: Final = 64
"""Characters that are looked at: readers of addresses skip blanks and control characters before and in a scheme."""


def addresses_in(messages: object) -> Iterator[str]:
    """The member of each part that holds an address where the thing itself could be, such as `image_url`."""
    for message in objects_of(messages):
        for part in (*objects_of(message.get("content")), *objects_of(message.get("images"))):
            for name, value in part.items():
                if name not in _SAID and any(map(_is_address, _texts_in(value))):
                    yield name


def _texts_in(value: object) -> Iterator[str]:
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            todo += cast(list[object], one)
        elif isinstance(one, Mapping):
            todo += [inner for name, inner in cast(Mapping[str, object], one).items() if name not in _SAID]


def _is_address(text: str) -> bool:
    return "".join(one for one in text[:_LONGEST] if one > " ").lower().startswith(_SCHEMES)
