"""Reasoning that a provider encrypted, as the thought signature of a part: callers of Gemini's format send those back
as they came, and all of them hold theirs for bytes in base64. Pure."""

import base64
import binascii
from collections.abc import Sequence
from typing import Final

import msgspec

from backends.formats.past_thinking import UNSIGNED, is_carried

_MARK: Final = UNSIGNED.encode()
SEALED: Final = base64.b64encode(_MARK).decode()
"""How such a signature begins: nine bytes are twelve letters."""
_DETAILS: Final = msgspec.json.Decoder(list[tuple[int, str]])
_STANDARD: Final = str.maketrans("-_", "+/")
"""Some clients write base64 in the letters that addresses may have."""


def seal_details(details: Sequence[tuple[int, str]]) -> str:
    """(place, what is carried) of each item of reasoning, as one signature."""
    return base64.b64encode(_MARK + msgspec.json.encode(details)).decode()


def is_sealed(signature: str) -> bool:
    """Whether it is one of ours, which no provider knows."""
    return signature.startswith(SEALED)


def details_in(signature: str) -> list[tuple[int, str]]:
    """What `seal_details` was given; nothing where it is another's signature."""
    if not is_sealed(signature):
        return []
    try:
        found = _DETAILS.decode(base64.b64decode(signature.translate(_STANDARD), validate=True)[len(_MARK) :])
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError):
        return []
    return [(place, carried) for place, carried in found if is_carried(carried)]
