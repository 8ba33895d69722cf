"""Recordings as files."""

import io
import wave


def wav(seconds: float, *, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(bytes(round(seconds * rate) * channels * width))
    return written.getvalue()
