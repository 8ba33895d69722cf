"""The HTTP client interface that adapters need. Knows nothing of models or formats."""

from collections.abc import Mapping
from typing import Protocol

from backends.protocol import Timeouts


class HttpResponse(Protocol):
    """An answer whose head has come. Close it always: that frees the connection, or cuts it if the body goes on."""

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
        """What has come of the body since the last call, at least one byte; empty at its proper end.

        Raises UpstreamUnavailable when the connection is lost, the body is cut or its encoding is wrong.
        """
        ...

    def close(self) -> None:
        """Idempotent; a `read` under way fails at once."""
        ...

    def finish(self) -> None:
        """Like close, for a body that should be complete: waits a moment for its last bytes, so that the connection can
        be reused."""
        ...


class HttpClient(Protocol):
    """A pool of connections."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> HttpResponse:
        """Send and wait for the answer's head.

        Raises ConnectFailed (nothing was sent), UpstreamTimeout (no head in time) or UpstreamUnavailable.
        """
        ...

    async def aclose(self) -> None: ...
