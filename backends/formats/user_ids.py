"""Rewrites an end user's id into one that another provider accepts: apps choose it for the API that they call. Pure.

An id that is not accepted is replaced by its hash, the same in every request, so that the provider still tells users
apart.
"""

import hashlib
import re
from typing import Final

_CHAT_MOST: Final = 64
"""OpenAI's limit; OpenRouter takes 128. Coding agents send Anthropic about 150 characters."""
_ANTHROPIC_MOST: Final = 256
_HAS_LETTER: Final = re.compile(r"[A-Za-z]")


def user_of_chat(user: str) -> str:
    return user if len(user) <= _CHAT_MOST else _digest(user)


def user_of_anthropic(user: str) -> str:
    """Anthropic answers 400 to e-mail addresses and phone numbers."""
    names_somebody = "@" in user or not _HAS_LETTER.search(user)
    return _digest(user) if user and (names_somebody or len(user) > _ANTHROPIC_MOST) else user


def _digest(user: str) -> str:
    return "u" + hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:32]
