"""Tells which provider's client is calling a path that several share, by what only that client sends. Pure."""

from typing import Final

from starlette.types import Scope

GOOGLES: Final = "breakeven.googles"
"""Scope key, set by other_addresses.py if the path or the key is in Google's form."""
GOOGLES_KEY: Final = b"x-goog-api-key"


def is_googles(scope: Scope) -> bool:
    """Whether one of Google's clients reads the answer."""
    return GOOGLES in scope
