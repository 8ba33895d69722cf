"""Changes fields of a multipart form in place and leaves every other byte as it was. Knows no wire format.

Like json_splice it rejects what two parsers may read differently: the gateway decides and charges by what it sees here.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_KIND: Final = "multipart/form-data"
_BOUNDARY: Final = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))\s*(?:;|$)', re.IGNORECASE)
_DISPOSITION: Final = re.compile(
    rb'[ \t]*form-data[ \t]*;[ \t]*name="([^"\\]{1,100})"(?:[ \t]*;[ \t]*filename="((?:[^"\\]|\\.){0,1000})")?[ \t]*',
    re.IGNORECASE,
)
_MARK: Final = b"--"
_HEAD_END: Final = b"\r\n\r\n"
_MOST_PARTS: Final = 200
_MOST_HEAD_BYTES: Final = 4096


class NotAForm(ValueError):
    """The bytes are not a multipart form that every parser reads the same way; the text says what is wrong."""


class Field(NamedTuple):
    """One part: its value is `body[start:end]`. `is_file`: it came with a file name."""

    name: str
    start: int
    end: int
    is_file: bool


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == _KIND


def find_fields(body: bytes, content_type: str) -> list[Field]:
    """Every part, in order. Raises NotAForm.

    A repeated name is rejected, unless it ends in `[]`, which marks a list, or all its parts are files.
    """
    found = _BOUNDARY.search(content_type)
    if not is_form(content_type) or found is None or not (content_type.isascii() and content_type.isprintable()):
        raise NotAForm("the content-type is not multipart/form-data with a plain boundary")
    mark = _MARK + (found[1] or found[2]).encode()
    if not body.startswith(mark + b"\r\n"):
        raise NotAForm("the form does not begin with its boundary")
    fields: list[Field] = []
    names: dict[str, bool] = {}
    at = len(mark) + 2
    while True:
        head_end = body.find(_HEAD_END, at, at + _MOST_HEAD_BYTES)
        start = head_end + len(_HEAD_END)
        end = body.find(b"\r\n" + mark, start)
        if head_end < 0 or end < 0 or body.startswith(mark, start):
            raise NotAForm("a part of the form is incomplete")
        if len(fields) == _MOST_PARTS:
            raise NotAForm(f"the form has more than {_MOST_PARTS} parts")
        field = _field(body[at:head_end], start, end)
        if names.setdefault(field.name, field.is_file) is not field.is_file or (
            not field.is_file and not field.name.endswith("[]") and any(one.name == field.name for one in fields)
        ):
            raise NotAForm(f"the field {field.name} occurs twice in the form")
        fields.append(field)
        at = end + 2 + len(mark)
        if body.startswith(b"--", at):
            if body[at + 2 :].strip(b"\r\n"):
                raise NotAForm("something follows the form's last boundary")
            return fields
        if not body.startswith(b"\r\n", at):
            raise NotAForm("a boundary of the form is followed by something else")
        at += 2


def _field(head: bytes, start: int, end: int) -> Field:
    """Raises NotAForm."""
    disposition: bytes | None = None
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if not colon or line[:1] in (b" ", b"\t"):
            raise NotAForm("a part of the form has a header that cannot be read")
        match name.strip().lower():
            case b"content-disposition" if disposition is None:
                disposition = value
            case b"content-disposition":
                raise NotAForm("a part of the form has two names")
            case b"content-transfer-encoding" if value.strip().lower() not in (b"binary", b"8bit", b"7bit"):
                raise NotAForm("a part of the form is encoded; send its bytes as they are")
            case _:
                pass
    named = _DISPOSITION.fullmatch(disposition or b"")
    if named is None:
        raise NotAForm("a part of the form has no plain name")
    try:
        return Field(named[1].decode(), start, end, named[2] is not None)
    except UnicodeDecodeError as error:
        raise NotAForm("a part's name is not UTF-8") from error


def text_fields(body: bytes, fields: list[Field]) -> dict[str, str]:
    """The value of every field that is not a file; the last one of a list. Raises NotAForm."""
    try:
        return {one.name: body[one.start : one.end].decode() for one in fields if not one.is_file}
    except UnicodeDecodeError as error:
        raise NotAForm("a field of the form is not UTF-8") from error


def splice_form(body: bytes, content_type: str, edits: Mapping[str, str]) -> bytes:
    """`body` with each edited field's value replaced; a missing field is added at the front. Raises NotAForm."""
    fields = find_fields(body, content_type)
    missing = dict(edits)
    for name in {field.name for field in fields} - edits.keys():
        if (meant := name.removesuffix("[]").casefold()) in edits:
            raise NotAForm(f"the field {name} is taken for {meant} by some servers and not by others")
    pieces: list[bytes] = []
    position = 0
    for field in fields:
        if field.is_file and field.name in edits:
            raise NotAForm(f"the field {field.name} is a file")
        if not field.is_file and (value := missing.pop(field.name, None)) is not None:
            pieces += (body[position : field.start], value.encode())
            position = field.end
    pieces.append(body[position:])
    mark = body[: body.index(b"\r\n")]
    added = [
        b'%b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (mark, name.encode(), value.encode())
        for name, value in missing.items()
    ]
    return b"".join((*added, *pieces))


def without_boundary(body: bytes, content_type: str) -> bytes:
    """A body that is equal for equal requests: a client that retries picks a new boundary. Each part's head and value
    is prefixed with its length. A body that is no form is returned as it is."""
    if not is_form(content_type):
        return body
    try:
        fields = find_fields(body, content_type)
    except NotAForm:
        return body
    between = body.index(b"\r\n") + 4  # from a value's end to the next head
    at = between - 2
    parts: list[bytes] = []
    for field in fields:
        for part in (body[at : field.start - len(_HEAD_END)], body[field.start : field.end]):
            parts += (len(part).to_bytes(8), part)
        at = field.end + between
    return b"".join(parts)
