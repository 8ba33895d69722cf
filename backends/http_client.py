"""What the adapters need of an HTTP client, and aiohttp as the one that does it. Knows nothing of models or formats.

aiohttp because it won `benchmarks/upstream_clients.py` among clients that install everywhere; a faster one is a class
beside this one. No redirect is followed, no cookie kept and no proxy taken from the environment, so what is sent with
a key can only reach the address it was configured with.
"""

import asyncio
import io
from collections.abc import Mapping
from typing import Final, Protocol

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from backends.errors import BackendError, ConnectFailed, UpstreamTimeout, UpstreamUnavailable

KEEP_ALIVE_SECONDS: Final = 30.0
LOCAL_KEEP_ALIVE_SECONDS: Final = 4.0
"""Without TLS a new connection costs nothing, and uvicorn, under most engines, hangs up after 5 s: a request sent just
then would be lost."""
_WRITTEN_AT_ONCE_BYTES: Final = 512 * 1024
"""A larger body goes out in pieces, so that other streams get their turn between them."""
_FINISH_SECONDS: Final = 1.0
_NO_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class HttpResponse(Protocol):
    """An answer whose head has come. Close it always: that frees the connection, or cuts it if the body goes on."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Looked up whatever the name's case."""
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
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, connect_seconds: float
    ) -> HttpResponse:
        """Send and wait for the answer's head. Raises ConnectFailed (nothing was sent) or UpstreamUnavailable."""
        ...

    async def aclose(self) -> None: ...


class AiohttpResponse:
    """One aiohttp answer."""

    __slots__ = ("_backend", "_finishing", "_response")

    def __init__(
        self, response: aiohttp.ClientResponse, backend: str, finishing: dict[aiohttp.ClientResponse, asyncio.Handle]
    ) -> None:
        self._response = response
        self._backend = backend
        self._finishing = finishing

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    async def read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            message = f"{self._backend} broke off its answer ({type(error).__name__})"
            raise UpstreamUnavailable(message, backend=self._backend) from error

    def close(self) -> None:
        self._response.close()

    def finish(self) -> None:
        response = self._response
        if not response.content.is_eof() and not response.closed:  # at its end the connection went back by itself
            loop = asyncio.get_running_loop()
            self._finishing[response] = loop.call_later(_FINISH_SECONDS, self._give_up, response)

    def _give_up(self, response: aiohttp.ClientResponse) -> None:
        del self._finishing[response]
        response.close()


class AiohttpClient:
    """A pool for one backend, made on first use because aiohttp wants a running loop."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._session: aiohttp.ClientSession | None = None
        self._finishing: dict[aiohttp.ClientResponse, asyncio.Handle] = {}

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, connect_seconds: float
    ) -> AiohttpResponse:
        session = self._session or self._open_session(url)
        timeout = aiohttp.ClientTimeout(total=None, connect=connect_seconds)
        data = io.BytesIO(body) if body is not None and len(body) > _WRITTEN_AT_ONCE_BYTES else body
        try:
            response = await session.request(
                method, URL(url, encoded=True), data=data, headers=headers, timeout=timeout, allow_redirects=False
            )
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise self._translated(error) from error
        return AiohttpResponse(response, self._backend, self._finishing)

    async def aclose(self) -> None:
        for response, timer in self._finishing.items():
            timer.cancel()
            response.close()
        self._finishing.clear()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open_session(self, url: str) -> aiohttp.ClientSession:
        idle = KEEP_ALIVE_SECONDS if url.startswith("https") else LOCAL_KEEP_ALIVE_SECONDS
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=idle, ttl_dns_cache=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_NO_TIMEOUT,
            headers={"user-agent": "breakeven", "accept-encoding": "identity"},
        )
        return self._session

    def _translated(self, error: Exception) -> BackendError:
        name = type(error).__name__
        for kinds, result, what in _TRANSLATION:
            if isinstance(error, kinds):
                return result(f"{self._backend} {what} ({name})", backend=self._backend)
        return UpstreamUnavailable(f"{self._backend} failed ({name})", backend=self._backend)


_TRANSLATION: Final[tuple[tuple[tuple[type[Exception], ...], type[BackendError], str], ...]] = (
    (
        (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError, aiohttp.InvalidURL),
        ConnectFailed,
        "is unreachable",
    ),
    ((asyncio.TimeoutError,), UpstreamTimeout, "did not answer in time"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError), UpstreamUnavailable, "dropped the connection"),
)
