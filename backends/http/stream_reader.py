"""What every wire format does with a stream's events: makes chunks of them. No IO, no clock."""

from collections import deque
from typing import Final, Protocol

from backends.protocol import Chunk

MOST_CALLS: Final = 10_000
"""Of tools, or other parts of one answer of which something is remembered until its end."""


class StreamReader(Protocol):
    """Turns events' data into chunks; one per stream. Every method may raise a BackendError."""

    is_started: bool
    """A chunk has been made: from now on a failure is StreamBroken."""
    is_done: bool
    """The answer is complete: nothing more is read."""

    def read(self, data: bytes) -> list[Chunk]: ...

    def join(self, events: deque[bytes]) -> Chunk | None:
        """One chunk of several events that came together, which it takes from the left; None where they are to be read
        one by one. Unless a reader says otherwise they always are."""
        del events
        return None

    def end(self) -> list[Chunk]:
        """The stream ended without saying so."""
        ...
