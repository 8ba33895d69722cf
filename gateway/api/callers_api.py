"""Tells which provider's client is calling a path that several share, by what only that client sends. Pure."""

from typing import Final

from starlette.types import Scope

GOOGLES: Final = "breakeven.googles"
"""In a scope: other_addresses.py has found an address, or a key, of Google's."""
GOOGLES_KEY: Final = b"x-goog-api-key"


def is_googles(scope: Scope) -> bool:
    """Whether a client of Google's reads the answer."""
    return GOOGLES in scope
