"""The interface of a wire format: how the server reads a request and writes an outcome."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from backends.scripted import Outcome


@dataclass(frozen=True, slots=True)
class Request:
    """What the server understood of a request."""

    operation: str
    model: str
    is_stream: bool
    includes_usage: bool
    fields: dict[str, object]


class Wire(Protocol):
    """One provider's format; events are whole SSE events, ready to send."""

    def opening(self, outcome: Outcome, request: Request) -> list[bytes]: ...

    def piece(self, outcome: Outcome, request: Request, text: str) -> bytes: ...

    def closing(self, outcome: Outcome, request: Request) -> list[bytes]: ...

    def answer(self, outcome: Outcome, request: Request) -> bytes: ...

    def error(self, status: int) -> bytes: ...

    def error_event(self) -> bytes: ...


def event(document: object, name: str | None = None) -> bytes:
    """One SSE event."""
    line = b"data: " + msgspec.json.encode(document) + b"\n\n"
    return f"event: {name}\n".encode() + line if name else line
