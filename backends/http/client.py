"""The HTTP client interface that adapters need. Knows nothing of models or formats."""

from collections.abc import Mapping
from typing import Protocol

from backends.protocol import Timeouts


class HttpResponse(Protocol):
    """A response whose head has been received. Always close it: that releases the connection, or drops it if the body
    is incomplete."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Lookups ignore case."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether a `read` would return without waiting; False if unknown."""
        ...

    async def read(self) -> bytes:
        """The part of the body received since the last call, at least one byte; empty at its proper end.

        Raises UpstreamUnavailable if the connection is lost, or the body is cut off or wrongly encoded.
        """
        ...

    def close(self) -> None:
        """Idempotent; a pending `read` fails at once."""
        ...

    def finish(self) -> None:
        """Like `close`, for a body that should be complete: its last bytes may still arrive for a moment, so that the
        connection can be reused."""
        ...


class HttpClient(Protocol):
    """A pool of connections."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> HttpResponse:
        """Send, and wait for the response's head.

        Raises ConnectFailed (nothing was sent), UpstreamTimeout (no head in time) or UpstreamUnavailable.
        """
        ...

    async def aclose(self) -> None: ...
