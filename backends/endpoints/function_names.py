"""Names of functions as every chat provider takes them. Pure."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI takes; Claude takes 128 characters, Gemini and MCP also dots and colons."""
_HASHED: Final = re.compile(r".*_[0-9a-f]{8}")


def name_for_chats(name: str) -> str:
    """A function's name as OpenAI accepts it: the same in every turn, and different for every name."""
    if _NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', name)[:55]}_{digest[:8]}"


def may_be_renamed(sent: str) -> bool:
    """Whether `name_for_chats` may have made this name of another."""
    return _HASHED.fullmatch(sent) is not None


def own_names(names: Iterable[str]) -> dict[str, str]:
    """The callers' own names of those that chats rename."""
    return {sent: name for name in names if (sent := name_for_chats(name)) != name}
