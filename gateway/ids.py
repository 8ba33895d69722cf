"""Request identifiers: UUIDv7 (RFC 9562 §5.7) as 32 hexadecimal digits, so that they sort by time."""

import os
import time


def new_request_id() -> str:
    """48 bits of milliseconds, then version, variant and 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (random_bits >> 68 & 0xFFF) << 64
    value |= 0b10 << 62 | random_bits & (1 << 62) - 1
    return f"{value:032x}"
