"""The interface of backends that can count a chat's tokens. Knows no wire format."""

from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

import msgspec

from backends.protocol import Call

COUNT_SECONDS: Final = 30.0
"""The longest wait for a count. Shorter than for an answer, since an estimate can replace it."""


@runtime_checkable
class CountsChats(Protocol):
    """A backend that can count a chat's prompt tokens, at no cost and without answering."""

    @property
    def counts_chats(self) -> bool:
        """False: `count_chat` always returns None."""
        ...

    async def count_chat(self, call: Call) -> int | None:
        """The prompt tokens of the chat `call`; None if they cannot be counted. Raises BackendError."""
        ...


def briefly(call: Call) -> Call:
    """The call with its timeouts capped at COUNT_SECONDS."""
    allowed = call.timeouts
    first, idle = min(allowed.first_byte_seconds, COUNT_SECONDS), min(allowed.idle_seconds, COUNT_SECONDS)
    return msgspec.structs.replace(call, timeouts=replace(allowed, first_byte_seconds=first, idle_seconds=idle))
