"""How long a recording lasts, by its bytes: exactly for WAV, within bounds for what is compressed. Pure.

Providers say what they bill; this is for what has to be held before they do, and for those that do not say.
"""

import struct
from typing import Final, NamedTuple

USUAL_BYTES_PER_SECOND: Final = 16_000
"""Of MP3 at 128 kbit/s, which is what most recordings are near."""
LEAST_BYTES_PER_SECOND: Final = 750
"""Of speech at 6 kbit/s, the least that Opus is made for."""
_MILLISECONDS: Final = 1000
_MOST_CHUNKS: Final = 64


class Length(NamedTuple):
    """In milliseconds: about, and at most."""

    usual: int
    most: int


def length_of(recording: bytes) -> Length:
    """Of one file's content."""
    exact = _of_wav(recording)
    if exact is not None:
        return Length(exact, exact)
    size = len(recording) * _MILLISECONDS
    return Length(-(-size // USUAL_BYTES_PER_SECOND), -(-size // LEAST_BYTES_PER_SECOND))


def _of_wav(recording: bytes) -> int | None:
    """Its samples that are there, at the rate that its format chunk tells; None where it is no plain WAV."""
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
            held = min(size, len(recording) - at - 8)  # who writes while recording does not know the size yet
            return held * _MILLISECONDS // bytes_per_second if bytes_per_second else None
        at += 8 + size + size % 2
    return None
