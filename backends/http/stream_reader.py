"""What every wire format does with a stream's events: makes chunks of them. No IO, no clock."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from backends.errors import BackendError
from backends.http.errors import broken, error_from_event
from backends.protocol import Chunk

MOST_CALLS: Final = 10_000
"""Of tools, or other parts of one answer of which something is remembered until its end."""


class StreamReader(ABC):
    """Turns events' data into chunks; one per stream. Every method may raise a BackendError."""

    __slots__ = ("_backend", "is_done", "is_started")

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.is_started = False
        """A chunk has been made: from now on a failure is StreamBroken."""
        self.is_done = False
        """The answer is complete: nothing more is read."""

    @abstractmethod
    def read(self, data: bytes) -> list[Chunk]: ...

    def join(self, events: deque[bytes]) -> Chunk | None:
        """One chunk of several events that came together, which it takes from the left; None where they are to be read
        one by one. Unless a reader says otherwise they always are."""
        del events
        return None

    def end(self) -> list[Chunk]:
        """The stream ended without saying so: in most formats too early."""
        raise self._broken("ended its stream before the answer was complete")

    def _broken(self, what: str) -> BackendError:
        return broken(self._backend, what, is_started=self.is_started)

    def _failed(self, error: object) -> BackendError:
        """What an error object among the events means."""
        return error_from_event(error, backend=self._backend, is_started=self.is_started)
