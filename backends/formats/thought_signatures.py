"""Packs encrypted reasoning of other providers into Gemini's thought signatures: callers of Gemini's format send those
back unchanged, and treat them as base64. Pure."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from backends.formats.past_thinking import UNSIGNED, is_carried

_MARK: Final = UNSIGNED.encode()
SEALED: Final = base64.b64encode(_MARK).decode()
"""The prefix of such a signature. Nine bytes are exactly twelve base64 characters, so it is the same in each."""
_DETAILS: Final = msgspec.json.Decoder(list[tuple[int, str]])
_STANDARD: Final = str.maketrans("-_", "+/")
"""Some clients send URL-safe base64."""


def seal_details(details: Sequence[tuple[int, str]]) -> str:
    """(place, carried reasoning) of each item, as one signature."""
    return base64.b64encode(_MARK + msgspec.json.encode(details)).decode()


def is_sealed(signature: str) -> bool:
    """Whether the signature is one of ours, which no provider understands."""
    return signature.startswith(SEALED)


def details_in(signature: str) -> list[tuple[int, str]]:
    """What `seal_details` was given; empty for any other signature."""
    if not is_sealed(signature):
        return []
    try:
        found = _DETAILS.decode(base64.b64decode(signature.translate(_STANDARD), validate=True)[len(_MARK) :])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [(place, carried) for place, carried in found if is_carried(carried)]
