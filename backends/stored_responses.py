"""What a backend that keeps responses can be asked about them. Knows no wire format."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class KeepsResponses(Protocol):
    """A backend whose provider may keep the responses it gave (OpenAI's Responses API)."""

    async def stored(self, method: str, path: str) -> bytes | None:
        """The provider's own answer to GET, DELETE or POST of `responses/` and `path`; None where it keeps none.
        Raises BackendError."""
        ...
