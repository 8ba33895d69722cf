"""Base of the readers that turn a stream's events into chunks, one per wire format. No IO, no clock."""

from abc import ABC, abstractmethod
from collections import deque
from typing import Final

from backends.errors import BackendError
from backends.http.errors import broken, error_from_event
from backends.protocol import Chunk

MOST_CALLS: Final = 10_000
"""Limit on an answer's tool calls, and on other parts that are remembered until its end."""


class StreamReader(ABC):
    """Turns the events of one stream into chunks. Every method may raise a BackendError."""

    __slots__ = ("_backend", "is_done", "is_started")

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.is_started = False
        """The answer has begun: from now on a failure is StreamBroken, and silence is limited by the idle time. Until
        then a model may be thinking, whatever has been told of the stream."""
        self.is_done = False
        """The answer is complete: no further events are read."""

    @abstractmethod
    def read(self, data: bytes) -> list[Chunk]: ...

    def join(self, events: deque[bytes]) -> Chunk | None:
        """One chunk made of several events that arrived together, removed from the left; None, as by default, if they
        must be read one by one."""
        del events
        return None

    def end(self) -> list[Chunk]:
        """Called if the stream ends without an end marker; in most formats that is too early."""
        raise self._broken("ended its stream before the answer was complete")

    def _broken(self, what: str) -> BackendError:
        return broken(self._backend, what, is_started=self.is_started)

    def _failed(self, error: object) -> BackendError:
        """The error for an error object among the events."""
        return error_from_event(error, backend=self._backend, is_started=self.is_started)
