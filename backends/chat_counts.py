"""What a backend that counts a chat's tokens can be asked. Knows no wire format."""

from dataclasses import replace
from typing import Final, Protocol, runtime_checkable

import msgspec

from backends.protocol import Call

COUNT_SECONDS: Final = 30.0
"""The longest that a count is waited for: an answer may take longer, but there is an estimate in this one's place."""


@runtime_checkable
class CountsChats(Protocol):
    """A backend that says how many tokens a chat's prompt would have, which answers nothing and costs nothing."""

    @property
    def counts_chats(self) -> bool:
        """False: to ask is in vain."""
        ...

    async def count_chat(self, call: Call) -> int | None:
        """`call` is the chat. None where that cannot be said of it. Raises BackendError."""
        ...


def briefly(call: Call) -> Call:
    """The same, waited for no longer than is worth it."""
    allowed = call.timeouts
    first, idle = min(allowed.first_byte_seconds, COUNT_SECONDS), min(allowed.idle_seconds, COUNT_SECONDS)
    return msgspec.structs.replace(call, timeouts=replace(allowed, first_byte_seconds=first, idle_seconds=idle))
