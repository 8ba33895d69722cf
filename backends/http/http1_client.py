"""The HTTP client of the token path: llhttp's parser (httptools) on bare asyncio, connections kept per origin.

No redirect is followed, no cookie kept and no proxy taken from the environment, so what is sent with a key can only
reach the address it was configured with. Knows nothing of models or formats.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from backends.errors import ConnectFailed, NoFilesLeft
from backends.http.dialing import Dialer, is_for_want_of_files
from backends.http.http1_connection import Http1Connection
from backends.http.http1_response import Http1Response
from backends.protocol import Timeouts

KEEP_ALIVE_SECONDS: Final = 30.0
"""Nor is one kept for longer than twice that where nobody calls: others need the files, of other backends too."""
LOCAL_KEEP_ALIVE_SECONDS: Final = 4.0
"""Without TLS a new connection costs nothing, and uvicorn, under most engines, hangs up after 5 s: a request sent just
then would be lost."""
UNKNOWN_ISSUER: Final = (18, 19, 20, 21)
"""OpenSSL's numbers of a certificate that it cannot lead back to anybody whom this machine trusts."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Target(NamedTuple):
    """A URL, taken apart once."""

    scheme: str
    host: str
    port: int
    head: bytes
    """From the path to the end of the headers that every request to it carries."""
    origin: tuple[str, str, int]


class Http1Client:
    """A pool for one backend. Used from one event loop; opens nothing before the first `send`."""

    def __init__(self, backend: str, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._backend = backend
        self._kept_seconds = {"https": keep_alive_seconds, "http": min(keep_alive_seconds, LOCAL_KEEP_ALIVE_SECONDS)}
        self._sweep: asyncio.TimerHandle | None = None
        self._targets: dict[str, _Target] = {}
        self._idle: dict[tuple[str, str, int], deque[Http1Connection]] = {}
        self._open: set[Http1Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._dialer = Dialer()

    @property
    def connections(self) -> int:
        """How many are open now, idle ones included."""
        return len(self._open)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> Http1Response:
        now = asyncio.get_running_loop().time()
        target = self._targets.get(url) or self._remember(url)
        connection = self._take_idle(target, now) or await self._connect(target, timeouts)
        head = _request_head(method, target, headers, body)
        return await connection.exchange(head, body, now + timeouts.first_byte_seconds)

    async def aclose(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._open):
            connection.close()
        for idle in self._idle.values():
            idle.clear()

    def _remember(self, url: str) -> _Target:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]
            if not host:
                raise ValueError("no host")
            name = host.encode("idna").decode("ascii") if not host.isascii() else host
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            named = f"[{name}]" if ":" in name else name
            host_header = named if port == _DEFAULT_PORTS[parts.scheme] else f"{named}:{port}"
            head = f"{path} HTTP/1.1\r\nhost: {host_header}\r\nuser-agent: breakeven\r\naccept-encoding: identity\r\n"
            target = _Target(parts.scheme, name, port, head.encode("ascii"), (parts.scheme, name, port))
        except (ValueError, KeyError) as error:
            raise ConnectFailed(f"{self._backend} has an address that cannot be used", backend=self._backend) from error
        self._targets[url] = target
        return target

    def _take_idle(self, target: _Target, now: float) -> Http1Connection | None:
        """The connection used last, if it is young enough to be alive; those that are not are closed."""
        idle = self._idle.get(target.origin)
        if not idle:
            return None
        self._drop_old(target.scheme, idle, now)
        while idle:
            connection = idle.pop()
            if not connection.is_closed:
                return connection
        return None

    def _drop_old(self, scheme: str, idle: deque[Http1Connection], now: float) -> None:
        oldest_allowed = now - self._kept_seconds[scheme]
        while idle and (idle[0].is_closed or idle[0].idle_since < oldest_allowed):
            idle.popleft().close()

    def _watch_idle(self) -> None:
        """Until there is none left: a burst would leave its connections for as long as the provider bears them."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for (scheme, _, _), idle in self._idle.items():
            self._drop_old(scheme, idle, loop.time())
        if self._open:
            self._sweep = loop.call_later(self._kept_seconds["https"], self._watch_idle)

    async def _connect(self, target: _Target, timeouts: Timeouts) -> Http1Connection:
        tls = self._context() if target.scheme == "https" else None

        def make() -> Http1Connection:
            return Http1Connection(self._backend, self._freed(target), self._open)

        try:
            async with asyncio.timeout(min(timeouts.connect_seconds, timeouts.first_byte_seconds)):
                connection = await self._dialer.dial(make, target.host, target.port, tls)
        except (OSError, TimeoutError, UnicodeError) as error:
            if is_for_want_of_files(error):
                message = "this process may open no more files; raise the limit (ulimit -Hn, systemd's LimitNOFILE)"
                raise NoFilesLeft(message, backend=self._backend) from error
            raise ConnectFailed(f"{self._backend} is unreachable ({_why(error)})", backend=self._backend) from error
        if self._sweep is None:
            self._watch_idle()
        return connection

    def _freed(self, target: _Target) -> deque[Http1Connection]:
        return self._idle.setdefault(target.origin, deque())

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _why(error: BaseException) -> str:
    """Callers hear it too: it names no host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.partition(",")[0]  # the name that was expected follows
        own = "; SSL_CERT_FILE can name your own CA's file" if error.verify_code in UNKNOWN_ISSUER else ""
        return f"its certificate is refused: {reason}{own}"
    if isinstance(error, socket.gaierror):
        return f"its host name is not resolved: {error.strerror}"
    return type(error).__name__


def _request_head(method: str, target: _Target, headers: Mapping[str, str], body: bytes | None) -> bytes:
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    return b"%b %b%b\r\n" % (method.encode("ascii"), target.head, "".join(lines).encode("latin-1"))
