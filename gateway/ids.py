"""Request identifiers: UUIDv7 (RFC 9562 §5.7) as 32 hexadecimal digits, so that they sort by time."""

import os
import time
from typing import Final

_VARIANT: Final = {f"{digit:x}": f"{0b1000 | digit & 0b11:x}" for digit in range(16)}
"""Keeps two bits of a random digit."""


def new_request_id() -> str:
    """48 bits of milliseconds, then version, variant and 74 random bits."""
    digits = ((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10)).hex()
    return f"{digits[:12]}7{digits[13:16]}{_VARIANT[digits[16]]}{digits[17:]}"
