"""The duration of a recording from its bytes: exact for WAV, an estimate and a bound for compressed formats. Pure.

Providers report what they bill; this is for what is held before that, and for providers that do not report it.
"""

import struct
from typing import Final, NamedTuple

USUAL_BYTES_PER_SECOND: Final = 16_000
"""MP3 at 128 kbit/s, which most recordings are close to."""
LEAST_BYTES_PER_SECOND: Final = 750
"""Speech at 6 kbit/s, the lowest rate that Opus is designed for."""
_MILLISECONDS: Final = 1000
_MOST_CHUNKS: Final = 64


class Length(NamedTuple):
    """In milliseconds: estimated, and at most."""

    usual: int
    most: int


def length_of(recording: bytes) -> Length:
    """The duration of one file's content."""
    exact = _of_wav(recording)
    if exact is not None:
        return Length(exact, exact)
    size = len(recording) * _MILLISECONDS
    return Length(-(-size // USUAL_BYTES_PER_SECOND), -(-size // LEAST_BYTES_PER_SECOND))


def _of_wav(recording: bytes) -> int | None:
    """The duration of the samples present, at the rate in the format chunk; None if it is not a plain WAV file."""
    if recording[:4] != b"RIFF" or recording[8:12] != b"WAVE":
        return None
    at, bytes_per_second = 12, 0
    for _ in range(_MOST_CHUNKS):
        if len(recording) < at + 8:
            return None
        name, size = struct.unpack_from("<4sI", recording, at)
        if name == b"fmt " and len(recording) >= at + 20:
            (bytes_per_second,) = struct.unpack_from("<I", recording, at + 16)
        if name == b"data":
            held = min(size, len(recording) - at - 8)  # a file written while recording does not know its size yet
            return held * _MILLISECONDS // bytes_per_second if bytes_per_second else None
        at += 8 + size + size % 2
    return None
