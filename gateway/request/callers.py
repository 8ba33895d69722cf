"""Callers of which no connection is known: those that wrap another one, and the caller of a request of our own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from backends.protocol import Chunk
from gateway.request.run import Caller


@dataclass(slots=True)
class PassingCaller:
    """Passes everything on, and looks at it on the way: in `send`, which each subclass defines."""

    caller: Caller
    content_type: str = field(default="", init=False)

    @property
    def is_gone(self) -> bool:
        return self.caller.is_gone

    def outlive(self, seconds: float | None = None) -> None:
        self.caller.outlive(seconds)

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.content_type = content_type
        await self.caller.start(status=status, content_type=content_type, headers=headers)


@dataclass(slots=True)
class KeepingAnswer:
    """Keeps the answer, and never leaves."""

    is_gone = False
    payload: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    status: int = 0

    def outlive(self, seconds: float | None = None) -> None: ...

    async def start(self, *, status: int, content_type: str, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers

    async def send(self, payload: bytes, *, chunk: Chunk | None = None, is_last: bool = False) -> None:
        self.payload += payload
