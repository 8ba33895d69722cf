"""Compressed bodies: the result, its size limit, and who may send them."""

import gzip
import zlib

import pytest

from gateway.api.shedding import Load
from gateway.api.unpacking import MOST_MEMBERS, Unpacker, unpack
from gateway.errors import BodyTooLarge, InvalidRequest, Unauthenticated, UnsupportedEncoding

BODY = b'{"model": "auto"}' * 10


def zipped(body: bytes) -> bytes:
    """The same bytes at any time: they are in the tests' names, which all workers must collect alike."""
    return gzip.compress(body, mtime=0)


@pytest.mark.parametrize("packed", [zipped(BODY), zlib.compress(BODY), zipped(BODY[:50]) + zipped(BODY[50:])])
def test_what_comes_out(packed: bytes) -> None:
    assert unpack(packed, len(BODY)) == BODY


@pytest.mark.parametrize("packed", [zipped(BODY), zipped(BODY[:50]) + zipped(BODY[50:])])
def test_one_byte_too_many(packed: bytes) -> None:
    with pytest.raises(BodyTooLarge, match="169 bytes when decompressed"):
        unpack(packed, len(BODY) - 1)


@pytest.mark.parametrize("packed", [BODY, zipped(BODY)[:-1], zipped(BODY) + b"x"])
def test_what_is_not_compressed_or_not_whole(packed: bytes) -> None:
    with pytest.raises(InvalidRequest, match="content-encoding"):
        unpack(packed, 1000)


def test_a_body_of_countless_pieces_is_refused_before_they_cost_minutes() -> None:
    assert unpack(zipped(b"") * MOST_MEMBERS, 1000) == b""
    with pytest.raises(InvalidRequest, match="Compress it as one"):
        unpack(zipped(b"") * (MOST_MEMBERS + 1), 1000)


def unpacker(load: Load) -> Unpacker:
    def authenticate(credential: str | None) -> None:
        if credential is None:
            raise Unauthenticated("who?")

    return Unpacker(load, authenticate, max_bytes=1_000_000)


@pytest.mark.parametrize(("size", "held"), [(10, 10_320), (100_000, 1_000_000)])
def test_the_memory_it_may_take_counts_until_it_is_released(size: int, held: int) -> None:
    load = Load()
    given = unpacker(load)
    assert given.hold(b"x" * size, b"GZIP", "key") == held
    assert load.buffered_bytes == held
    given.release(held)
    assert load.buffered_bytes == 0


@pytest.mark.parametrize(
    ("encoding", "credential", "expected"),
    [
        (b"gzip", None, Unauthenticated),
        (b"br", "key", UnsupportedEncoding),
        (b"gzip, gzip", "key", UnsupportedEncoding),
    ],
)
def test_who_is_refused_before_anything_is_unpacked(
    encoding: bytes, credential: str | None, expected: type[Exception]
) -> None:
    load = Load()
    with pytest.raises(expected):
        unpacker(load).hold(b"x", encoding, credential)
    assert load.buffered_bytes == 0
