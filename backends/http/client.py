"""What the adapters need of an HTTP client. Knows nothing of models or formats."""

from collections.abc import Mapping
from typing import Protocol

from backends.protocol import Timeouts


class HttpResponse(Protocol):
    """An answer whose head has come. Close it always: that frees the connection, or cuts it if the body goes on."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up whatever the name's case."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether a `read` would not have to wait; False where that cannot be told."""
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
        """As close, but nothing more is wanted of a body that should be over: its last bytes get a moment to come, so
        that the connection can serve the next call."""
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
