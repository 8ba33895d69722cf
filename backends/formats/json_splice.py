"""Reads JSON whose values stay as they are written, and changes members of an object in place. Knows no wire format."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from backends.formats.json_objects import NOT_JSON

MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
OBJECTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
VALUES: Final = msgspec.json.Decoder(list[msgspec.Raw])
ESCAPE: Final = b"\\u00"
"""A JSON escape, which may stand for any letter of a name or word."""
_KEY: Final = msgspec.json.Decoder(str)
_SPACE: Final = b" \t\r\n"
_FIRST_BYTES: Final = 32
_COPIED_BYTES: Final = 1 << 14
"""A larger body is not written again, only to be compared: from 24 KB on, that costs more than to walk it."""
_MOST_MEMBERS: Final = 1000
"""No API has a tenth of that, and the event loop is blocked while they are read."""
TWICE: Final = "a key of the JSON object appears twice"
_MEMBER: Final = re.compile(rb'[ \t\r\n]*[{,][ \t\r\n]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
"""A key with the opening brace or comma before it and the colon after it."""


class NotAnObject(ValueError):
    """The bytes are not one JSON object with distinct keys, or it has too many; the text says what is wrong."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """A member's position: `key_start` at its key's quote, its value at `[start, end)`."""

    key_start: int
    start: int
    end: int

    def of(self, body: bytes) -> bytes:
        """The value, as it is written in the body."""
        return body[self.start : self.end]


def objects_in(text: bytes) -> list[dict[str, msgspec.Raw]]:
    """A list of objects, such as messages; empty if the text is something else, which its provider is to refuse."""
    try:
        return OBJECTS.decode(text)
    except msgspec.DecodeError:
        return []


def find_members(body: bytes) -> dict[str, Member]:
    """Every top-level member and its place. Raises NotAnObject, duplicate keys included.

    The decoder reads the values and they are placed apart. Both must agree on every byte, so no body can show one
    another object than the other.
    """
    try:
        values = MEMBERS.decode(body)
    except NOT_JSON as error:
        raise NotAnObject(f"the body is not a JSON object: {error}") from error
    if len(values) > _MOST_MEMBERS:
        raise NotAnObject(f"the JSON object has {len(values):,} members, more than {_MOST_MEMBERS:,}")
    return (_placed(body, values) if len(body) <= _COPIED_BYTES else None) or _walked(body, values)


def _placed(body: bytes, values: Mapping[str, msgspec.Raw]) -> dict[str, Member] | None:
    """The members of an object in a usual style: with one space after each comma and colon, or none. It is in one if
    written so it is the same."""
    comma, colon = (b", ", b": ") if body.find(b'": ', 0, _FIRST_BYTES) > 0 else (b",", b":")
    members: dict[str, Member] = {}
    written: list[bytes] = []
    position = 1
    for name, value in values.items():
        key = name.encode()
        member = b'"%b"%b%b' % (key, colon, value)
        end = position + len(member)
        members[name] = Member(position, position + len(key) + 2 + len(colon), end)
        written.append(member)
        position = end + len(comma)
    return members if body == b"{%b}" % comma.join(written) else None


def _walked(body: bytes, values: Mapping[str, msgspec.Raw]) -> dict[str, Member]:
    """The members of any object."""
    members: dict[str, Member] = {}
    position = 0
    for name, value in values.items():
        match = _MEMBER.match(body, position)
        if not match or _KEY.decode(b'"%b"' % match[1]) != name or not body.startswith(value, match.end()):
            raise NotAnObject(TWICE)
        position = match.end() + len(memoryview(value))
        members[name] = Member(match.start(1) - 1, match.end(), position)
    if values and body[position:].strip(_SPACE) != b"}":
        raise NotAnObject(TWICE)
    return members


def require_plain_names(members: Iterable[str], decided_on: frozenset[str]) -> None:
    """Raises NotAnObject if one of `decided_on` is spelled in another case.

    Go servers match names in any case and take the last one, while we read only the exact spelling.
    """
    together = "\n".join(members)
    if together == together.casefold():
        return
    for name in members:
        if name != (meant := name.casefold()) and meant in decided_on:
            raise NotAnObject(f"{name!r} is taken for {meant!r} by some servers and not by others; write {meant!r}")


def splice(body: bytes, edits: Mapping[str, bytes | None], members: dict[str, Member] | None = None) -> bytes:
    """`body` with each edited member's value replaced, added at the end when missing, or removed when None.

    Values are JSON text. A value that is already there is left alone. Raises NotAnObject.
    """
    if members is None:
        members = find_members(body)
    changed: dict[str, bytes] = {}
    removed: list[str] = []
    for key, value in edits.items():
        member = members.get(key)
        if value is not None and (member is None or member.of(body) != value):
            changed[key] = value
        elif value is None and member is not None:
            removed.append(key)
    if removed:
        return _rebuild(body, members, changed, removed)
    pieces: list[bytes] = []
    position = end = 0
    for key, member in members.items():
        end = member.end
        if key in changed:
            pieces += (body[position : member.start], changed.pop(key))
            position = end
    if changed:
        added = [msgspec.json.encode(key) + b":" + value for key, value in changed.items()]
        end = end or body.index(b"{") + 1
        pieces += (body[position:end], b"," if members else b"", b",".join(added))
        position = end
    if not pieces:
        return body
    pieces.append(body[position:])
    return b"".join(pieces)


def _rebuild(body: bytes, members: dict[str, Member], changed: dict[str, bytes], removed: list[str]) -> bytes:
    """Removal is rare and shifts commas: write the members out one by one, each value's bytes as they were."""
    kept = [
        body[member.key_start : member.start] + changed.pop(key, member.of(body))
        for key, member in members.items()
        if key not in removed
    ]
    kept += [msgspec.json.encode(key) + b":" + value for key, value in changed.items()]
    return b"{" + b",".join(kept) + b"}"
