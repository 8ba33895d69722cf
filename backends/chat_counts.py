"""What a backend that counts a chat's tokens can be asked. Knows no wire format."""

from typing import Protocol, runtime_checkable

from backends.protocol import Call


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
