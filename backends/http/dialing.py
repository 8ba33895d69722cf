"""Opens connections by host name: concurrent lookups of a name share one resolver query, and further addresses are
tried in parallel if the first does not answer. Knows no HTTP."""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

NEXT_SECONDS: Final = 0.25
"""RFC 8305, 5: the delay before the next address is tried in parallel."""
ANSWER_SECONDS: Final = 1.0
"""How long the resolver is waited for if addresses are known. While a name server is down, the system's resolver asks
the next one after 5 s, which is all the time that a connection has by default."""
STALE_SECONDS: Final = 300.0
"""How long old addresses are used while the resolver fails or is slow."""

GONE_SECONDS: Final = 60
"""How long a peer's kernel may acknowledge nothing, however busy its program. Without a bound, a call on a connection
whose peer has vanished waits for its whole timeout: ten minutes, unless configured."""
SIGNS_OF_LIFE: Final = {
    "TCP_KEEPIDLE": GONE_SECONDS // 2,
    "TCP_KEEPALIVE": GONE_SECONDS // 2,  # what macOS calls the same
    "TCP_KEEPINTVL": GONE_SECONDS // 6,
    "TCP_KEEPCNT": 3,
}
MUST_READ: Final = {"TCP_USER_TIMEOUT": GONE_SECONDS * 1000}
"""Linux's, since no probes are sent while data waits to be acknowledged. It also drops a peer that acknowledges but
reads nothing, as a server of one's own that answers one call after the other: so only where TLS is spoken."""

P = TypeVar("P", bound=asyncio.Protocol)
Connecting = asyncio.Task[tuple[asyncio.Transport, P]]


class Dialer:
    """For one event loop. asyncio's `create_connection` would query the resolver for every connection (it has few
    threads for all names), and wait at an unresponsive address until the whole timeout is over."""

    def __init__(self, *, next_seconds: float = NEXT_SECONDS, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._next_seconds, self._answer_seconds = next_seconds, answer_seconds
        self._asking: dict[tuple[str, int], asyncio.Task[Sequence[str]]] = {}
        self._known: dict[tuple[str, int], tuple[float, Sequence[str]]] = {}

    async def dial(self, make: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None) -> P:
        """Raises OSError: the last address's failure, or the resolver's."""
        addresses = await self._addresses(host, port)
        loop = asyncio.get_running_loop()
        name = host if tls else None
        if len(addresses) == 1:
            opened = await loop.create_connection(make, addresses[0], port, ssl=tls, server_hostname=name)
            return _watched(*opened, must_read=tls is not None)
        pending: set[Connecting[P]] = set()
        error: BaseException | None = None
        try:
            for number, address in enumerate(addresses):
                connecting = loop.create_connection(make, address, port, ssl=tls, server_hostname=name)
                pending.add(asyncio.ensure_future(connecting))
                is_last = number == len(addresses) - 1
                while pending:
                    seconds = None if is_last else self._next_seconds
                    done, pending = await asyncio.wait(pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                    for one in done:
                        if (error := one.exception()) is None:
                            pending |= done - {one}
                            return _watched(*one.result(), must_read=tls is not None)
                    if not is_last:
                        break
            assert error is not None
            raise error
        finally:
            await _call_off(pending)

    async def _addresses(self, host: str, port: int) -> Sequence[str]:
        if _is_address(host):
            return (host,)
        place = host, port
        asking = self._asking.get(place)
        if asking is None:
            asking = self._asking[place] = asyncio.create_task(_resolve(host, port))
            asking.add_done_callback(lambda task: self._answered(place, task))
        known_at, addresses = self._known.get(place, (float("-inf"), ()))
        if asyncio.get_running_loop().time() - known_at > STALE_SECONDS:
            return await asyncio.shield(asking)
        await asyncio.wait((asking,), timeout=self._answer_seconds)
        return asking.result() if asking.done() and asking.exception() is None else addresses

    def _answered(self, place: tuple[str, int], task: asyncio.Task[Sequence[str]]) -> None:
        del self._asking[place]
        if not task.cancelled() and task.exception() is None:
            self._known[place] = asyncio.get_running_loop().time(), task.result()


def is_for_want_of_files(error: BaseException) -> bool:
    """Whether dialing failed because this process is out of files. A resolver that ran out reports only a failure."""
    if not isinstance(error, socket.gaierror):
        return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as own:
        return is_for_want_of_files(own)
    return False


async def _resolve(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def _watched(transport: asyncio.Transport, protocol: P, *, must_read: bool) -> P:
    """Has the kernel drop the connection once its peer is gone."""
    if transport.is_closing():
        return protocol
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (SIGNS_OF_LIFE | (MUST_READ if must_read else {})).items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return protocol


async def _call_off(pending: "set[Connecting[P]]") -> None:
    """Cancels attempts that are no longer needed, and closes connections they may just have opened."""
    for one in pending:
        one.cancel()
    for outcome in await asyncio.gather(*pending, return_exceptions=True):
        if not isinstance(outcome, BaseException):
            outcome[0].abort()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
