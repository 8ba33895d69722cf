"""Changes members of a JSON object inside its bytes, and leaves every other byte as it was. Knows no wire format."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEY: Final = msgspec.json.Decoder(str)
_OPEN: Final = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*")
_MEMBER: Final = re.compile(rb'("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_NEXT: Final = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_CLOSE: Final = re.compile(rb"[ \t\r\n]*\}[ \t\r\n]*\Z")


class NotAnObject(ValueError):
    """The bytes are not one JSON object with distinct keys; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Member:
    """Where one member lies: `key_start` at its key's quote, its value at `[start, end)`."""

    key_start: int
    start: int
    end: int


def find_members(body: bytes) -> dict[str, Member]:
    """Every top-level member and its place. Raises NotAnObject, duplicate keys included.

    The decoder reads the values and this walk places them. Both must agree on every byte, so no body can show the
    walk another object than the one a JSON parser sees.
    """
    try:
        values = _OBJECT.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotAnObject(f"the body is not a JSON object: {error}") from error
    opened = _OPEN.match(body)
    assert opened, "the decoder saw an object"
    members: dict[str, Member] = {}
    position = opened.end()
    for number in range(len(values)):
        if number:
            comma = _NEXT.match(body, position)
            position = comma.end() if comma else position
        match = _MEMBER.match(body, position)
        key = _KEY.decode(match.group(1)) if match else None
        if not match or key is None or not body.startswith(values[key], match.end()):
            raise NotAnObject("a key of the JSON object appears twice")
        members[key] = Member(position, match.end(), match.end() + len(memoryview(values[key])))
        position = members[key].end
    if not _CLOSE.match(body, position):
        raise NotAnObject("a key of the JSON object appears twice")
    return members


def splice(body: bytes, edits: Mapping[str, bytes | None], members: dict[str, Member] | None = None) -> bytes:
    """`body` with each edited member's value replaced, added at the end when missing, or removed when None.

    Values are JSON text. A value that is already there is left alone. Raises NotAnObject.
    """
    if members is None:
        members = find_members(body)
    removed = [key for key, value in edits.items() if value is None and key in members]
    changed = {
        key: value
        for key, value in edits.items()
        if value is not None and (key not in members or body[members[key].start : members[key].end] != value)
    }
    if removed:
        return _rebuild(body, members, changed, removed)
    pieces: list[bytes] = []
    position = 0
    for key, member in members.items():
        if key in changed:
            pieces += (body[position : member.start], changed[key])
            position = member.end
    added = [msgspec.json.encode(key) + b":" + value for key, value in changed.items() if key not in members]
    if added:
        end = max((member.end for member in members.values()), default=body.index(b"{") + 1)
        pieces += (body[position:end], b"," if members else b"", b",".join(added))
        position = end
    if not pieces:
        return body
    pieces.append(body[position:])
    return b"".join(pieces)


def _rebuild(body: bytes, members: dict[str, Member], changed: dict[str, bytes], removed: list[str]) -> bytes:
    """Removal is rare and shifts commas: write the members out one by one, each value's bytes as they were."""
    kept = [
        body[member.key_start : member.start] + changed.pop(key, body[member.start : member.end])
        for key, member in members.items()
        if key not in removed
    ]
    kept += [msgspec.json.encode(key) + b":" + value for key, value in changed.items()]
    return b"{" + b",".join(kept) + b"}"
