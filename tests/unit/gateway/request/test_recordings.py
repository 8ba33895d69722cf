"""The duration of a recording from its bytes: exact for WAV, bounded for compressed formats."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.recordings import Length, length_of
from tests.recordings import wav


@pytest.mark.parametrize("seconds", [0.0, 0.5, 3.0, 61.25])
@pytest.mark.parametrize(("rate", "channels", "width"), [(8_000, 1, 1), (16_000, 1, 2), (48_000, 2, 3)])
def test_a_wav_tells_its_length(seconds: float, rate: int, channels: int, width: int) -> None:
    found = length_of(wav(seconds, rate=rate, channels=channels, width=width))
    assert found == Length(round(seconds * 1000), round(seconds * 1000))


def test_chunks_before_the_samples_are_passed_over() -> None:
    plain = wav(2.0)
    listed = plain[:12] + struct.pack("<4sI", b"LIST", 5) + b"abcde\0" + plain[12:]
    assert length_of(listed) == Length(2000, 2000)


def test_samples_that_are_not_there_do_not_count() -> None:
    """A file written while recording claims four gigabytes, or nothing yet."""
    plain = wav(2.0)
    endless = plain.replace(struct.pack("<4sI", b"data", 64_000), struct.pack("<4sI", b"data", 0xFFFFFFFF))
    assert length_of(endless) == Length(2000, 2000)


def test_what_is_compressed_is_bounded() -> None:
    """A minute of MP3 at 128 kbit/s, which might be 21 minutes of Opus at 6."""
    assert length_of(b"ID3" + bytes(960_000 - 3)) == Length(60_000, 1_280_000)
    assert length_of(b"") == Length(0, 0)


@given(st.binary(max_size=200).map(lambda rest: b"RIFF\0\0\0\0WAVE" + rest) | st.binary(max_size=200))
def test_whatever_the_bytes_there_is_an_answer(recording: bytes) -> None:
    found = length_of(recording)
    assert 0 <= found.usual <= found.most
