"""The layout of a record: length, CRC32C salted with the segment's epoch, kind, request id, payload. Pure."""

import re
import struct
from collections.abc import Iterator
from enum import IntEnum
from functools import lru_cache

import google_crc32c
import msgspec

HEAD = struct.Struct("<II")
HEAD_BYTES = HEAD.size
SALT = struct.Struct("<QI")
MAX_RECORD_BYTES = 1 << 22
LONGEST_TEXT_BYTES = 1 << 13
"""More than a caller can have written into one record: an end user's name, and tags of at most 4 KiB together."""
BODY_BEGINS = re.compile(rb"[\x01-\x03]\x20[0-9a-f]{32}")
"""Kind, length and text of a request id: how the body of each of our records begins, right after HEAD."""


class Kind(IntEnum):
    """What a record is about."""

    INTENT = 1
    CHECKPOINT = 2
    SETTLE = 3


KINDS = {int(kind): kind for kind in Kind}
SETTLE = int(Kind.SETTLE)


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record; `end` is the offset of the byte after it."""

    kind: Kind
    request_id: str
    payload: bytes
    end: int


class Framing:
    """Encodes records as bytes and finds them again.

    The checksum includes the epoch, so that a stale record of another segment, in blocks that the file system reused,
    is never taken for one of this segment.
    """

    def frame(self, epoch: int, kind: Kind, request_id: str, payload: bytes) -> bytes:
        """The bytes of one record. Raises ValueError when the id or payload is too long for the format."""
        name = request_id.encode("ascii")
        if len(name) > 255 or len(payload) > MAX_RECORD_BYTES - 512:
            raise ValueError(f"record too long: id of {len(name)} bytes, payload of {len(payload)} bytes")
        body = b"".join((bytes((kind, len(name))), name, payload))
        return HEAD.pack(len(body), self.checksum(epoch, body)) + body

    def scan(self, epoch: int, content: bytes, base: int = 0, start: int = 0) -> Iterator[Record]:
        """The records in `content` from `start` on, up to the first that is incomplete or damaged.

        `content` begins at offset `base` of the segment.
        """
        position = start
        while position + HEAD_BYTES <= len(content):
            length, checksum = HEAD.unpack_from(content, position)
            end = position + HEAD_BYTES + length
            if length < 2 or length > MAX_RECORD_BYTES or end > len(content):
                return
            body = content[position + HEAD_BYTES : end]
            name_end = 2 + body[1]
            kind = KINDS.get(body[0])
            if kind is None or name_end > length or self.checksum(epoch, body) != checksum:
                return
            yield Record(kind, body[2:name_end].decode("ascii", "replace"), body[name_end:], base + end)
            position = end

    def scan_settled(self, epoch: int, content: bytes, base: int) -> tuple[list[str], list[bytes], int]:
        """The request ids and payloads of the settlements that `scan` would yield, and the offset after the last
        record. Other records are stepped over unchecked: a wrong length would lead to no settlement."""
        request_ids: list[str] = []
        payloads: list[bytes] = []
        position = 0
        while position + HEAD_BYTES <= len(content):
            length, checksum = HEAD.unpack_from(content, position)
            begin = position + HEAD_BYTES
            end = begin + length
            if length < 2 or length > MAX_RECORD_BYTES or end > len(content) or content[begin] not in KINDS:
                break
            if content[begin] == SETTLE:
                body = content[begin:end]
                name_end = 2 + body[1]
                if name_end > length or self.checksum(epoch, body) != checksum:
                    break
                request_ids.append(body[2:name_end].decode("ascii", "replace"))
                payloads.append(body[name_end:])
            position = end
        return request_ids, payloads, base + position

    def find_runs(self, epoch: int, content: bytes, start: int, until: int) -> Iterator[int]:
        """Where, at or after `start`, runs of whole records begin that reach `until` or are longer than a text can be.

        A single whole record is not enough: a caller's text inside a torn record could look like one.
        """
        while found := BODY_BEGINS.search(content, start + HEAD_BYTES, until):
            begin = end = found.start() - HEAD_BYTES
            for record in self.scan(epoch, content, start=begin):
                end = record.end
            if end >= until or end - begin > LONGEST_TEXT_BYTES:
                yield begin
            start = max(end, begin + 1)

    def checksum(self, epoch: int, body: bytes) -> int:
        """CRC32C over the epoch, the length and the body."""
        return google_crc32c.extend(_salt(epoch, len(body)), body)


@lru_cache(2048)
def _salt(epoch: int, length: int) -> int:
    """The checksum of what a body's own begins with. Most records have one of a few hundred lengths."""
    return google_crc32c.value(SALT.pack(epoch, length))
