"""Base of callers that wrap another caller: they pass everything on, and look at it on the way."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.request.run import Caller


@dataclass(slots=True)
class PassingCaller:
    """A Caller without `send`, which each subclass defines."""

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
