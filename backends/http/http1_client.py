"""HTTP/1.1 client for all calls: llhttp's parser (httptools) on plain asyncio, with a connection pool per origin.

It follows no redirects, keeps no cookies and takes no proxy from the environment, so that a key can only reach the
address it was configured for. Knows nothing of models or formats.
"""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from backends.errors import ConnectFailed, NoFilesLeft
from backends.http.dialing import Dialer, is_for_want_of_files
from backends.http.http1_connection import Http1Connection
from backends.http.http1_response import Http1Response
from backends.http.kept_connections import Kept
from backends.protocol import Timeouts

KEEP_ALIVE_SECONDS: Final = 30.0
"""How long an idle connection is reused. Without any calls it is closed after twice that at the latest, since other
connections, also other backends', need the file descriptors."""
LOCAL_KEEP_ALIVE_SECONDS: Final = 4.0
"""Without TLS a new connection costs almost nothing, and uvicorn, which most engines use, closes idle ones after 5 s: a
request sent at that moment would be lost."""
UNKNOWN_ISSUER: Final = (18, 19, 20, 21)
"""OpenSSL's codes for a certificate whose chain ends at no CA that this machine trusts."""
AGAINST_RFC_5280: Final = range(80, 95)
"""OpenSSL's codes for a certificate, or a CA's, that violates RFC 5280; Python checks this since 3.13."""
MOST_TARGETS: Final = 64
"""URLs that are remembered: a backend's calls have a dozen, those of stored responses one for each id."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Target(msgspec.Struct, frozen=True):
    """A parsed URL, cached."""

    scheme: str
    host: str
    port: int
    head: bytes
    """The start of every request to it: from the path to the last of the constant headers."""
    origin: tuple[str, str, int]


class Http1Client:
    """The connection pool of one backend. For one event loop; opens nothing before the first `send`."""

    def __init__(self, backend: str, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._backend = backend
        self._kept_seconds = {"https": keep_alive_seconds, "http": min(keep_alive_seconds, LOCAL_KEEP_ALIVE_SECONDS)}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._targets: dict[str, _Target] = {}
        self._kept: dict[tuple[str, str, int], Kept] = {}
        self._open: set[Http1Connection] = set()
        self._tls: ssl.SSLContext | None = None
        self._dialer = Dialer()

    @property
    def connections(self) -> int:
        """The number of open connections, idle ones included."""
        return len(self._open)

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, *, timeouts: Timeouts
    ) -> Http1Response:
        loop = self._loop = self._loop or asyncio.get_running_loop()
        now = loop.time()
        target = self._targets.get(url) or self._remember(url)
        kept = self._kept.get(target.origin) or self._keep(target)
        connection = kept.take(now) or await self._wait(kept, target, timeouts)
        head = _request_head(method, target, headers, body)
        return await connection.exchange(head, body, now + timeouts.first_byte_seconds)

    async def aclose(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in list(self._open):
            connection.close()
        for kept in self._kept.values():
            kept.close()

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
            raise ConnectFailed(f"{self._backend} has an invalid address") from error
        if len(self._targets) >= MOST_TARGETS:
            self._targets.clear()
        self._targets[url] = target
        return target

    def _keep(self, target: _Target) -> Kept:
        kept = self._kept[target.origin] = Kept(self._kept_seconds[target.scheme])
        return kept

    def _watch_idle(self) -> None:
        """Closes idle connections periodically until none is left: else those of a burst would stay open until the
        provider closes them."""
        self._sweep = None
        loop = asyncio.get_running_loop()
        for kept in self._kept.values():
            kept.drop_old(loop.time())
        if self._open:
            self._sweep = loop.call_later(self._kept_seconds["https"], self._watch_idle)

    async def _wait(self, kept: Kept, target: _Target, timeouts: Timeouts) -> Http1Connection:
        try:
            async with asyncio.timeout(min(timeouts.connect_seconds, timeouts.first_byte_seconds)):
                return await kept.next(lambda: self._dial(kept, target, timeouts.connect_seconds))
        except TimeoutError as error:
            raise self._unreachable(error) from error

    async def _dial(self, kept: Kept, target: _Target, seconds: float) -> Http1Connection:
        tls = self._context() if target.scheme == "https" else None

        def make() -> Http1Connection:
            return Http1Connection(self._backend, kept.give, self._open)

        try:
            async with asyncio.timeout(seconds):
                connection = await self._dialer.dial(make, target.host, target.port, tls)
        except (OSError, TimeoutError, UnicodeError) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                self._tls = None  # the authorities may have been renewed on this machine: read them again
            if is_for_want_of_files(error):
                message = (
                    "this process has reached its limit of open files; raise it (ulimit -Hn, systemd's LimitNOFILE)"
                )
                raise NoFilesLeft(message) from error
            raise self._unreachable(error) from error
        if self._sweep is None:
            self._watch_idle()
        return connection

    def _unreachable(self, error: BaseException) -> ConnectFailed:
        return ConnectFailed(f"{self._backend} is unreachable ({_why(error)})")

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _why(error: BaseException) -> str:
    """Callers see this too, so it names no host."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.partition(",")[0]  # the expected host name follows
        return f"its certificate is refused: {reason}{_remedy(error.verify_code)}"
    if isinstance(error, socket.gaierror):
        return f"its host name cannot be resolved: {error.strerror}"
    return type(error).__name__


def _remedy(verify_code: int) -> str:
    if verify_code in UNKNOWN_ISSUER:
        return "; if it is from your own CA, name the CA's file in SSL_CERT_FILE"
    if verify_code in AGAINST_RFC_5280:
        return "; since Python 3.13 it and its CA's must comply with RFC 5280: create them anew"
    return ""


def _request_head(method: str, target: _Target, headers: Mapping[str, str], body: bytes | None) -> bytes:
    lines = "\r\n".join(map(": ".join, headers.items())).encode("latin-1")
    length = b"" if body is None else b"content-length: %d\r\n" % len(body)
    return b"%b %b%b%b%b\r\n" % (method.encode("ascii"), target.head, lines, b"\r\n" if lines else b"", length)
