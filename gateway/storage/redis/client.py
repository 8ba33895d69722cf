"""Redis clients with timeouts, both for the server and for a free connection, and the translation of their errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as ConnectionLost
from redis.maint_notifications import MaintNotificationsConfig

from gateway.config.redis_addresses import RedisAddress, split_redis_url
from gateway.errors import StoreDown
from gateway.storage.redis.primary import ROOT, Place, Primary

T = TypeVar("T")
CONNECTIONS = 64
ANSWER_SECONDS = 2.0
SHOWN_CHARACTERS = 200
NO_CLUSTER: Final = (
    "it is a Redis Cluster, whose address is written as redis+cluster://host1:6379,host2:6379 (rediss+... over TLS)"
)
MOVING: Final = "its keys are being moved to another node of the cluster; once all are there, it is found by itself"
NO_FILE = (FileNotFoundError, IsADirectoryError)
NO_TLS_FILE: Final = "There is no such file as `ssl_ca_certs`, `ssl_certfile` or `ssl_keyfile` in its address names"


class _Ours(AbstractConnection):
    host: str
    port: int
    find: Callable[[], Awaitable[Place]] | None = None
    """Says at each connect where the primary is, if the address names those who know."""

    async def _connect(self) -> None:
        async with asyncio.timeout(self.socket_connect_timeout):
            if self.find is not None:
                self.host, self.port = await self.find()
            await super()._connect()

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        """Reports a lost connection as the client's ConnectionError: uvloop refuses to write to it with a RuntimeError,
        which the client passes on."""
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            raise ConnectionLost(str(error)) from error


class _Plain(_Ours, Connection):
    pass


class _Encrypted(_Ours, SSLConnection):
    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        """After a failure it reads its certificates again: they may have been renewed, and connections are kept."""
        try:
            await super().connect_check_health(check_health, retry_socket_connect)
        except (RedisError, OSError):
            self.ssl_context.context = None
            raise


class _Local(_Ours, UnixDomainSocketConnection):
    pass


CLASSES: Final[dict[type[AbstractConnection], type[_Ours]]] = {
    Connection: _Plain,
    SSLConnection: _Encrypted,
    UnixDomainSocketConnection: _Local,
}


class _Redirected(Retry):
    """Runs a command once more, over a new connection, if the server said that another one is the primary by now. It
    has not run it."""

    async def call_with_retry(self, do: Callable[[], Awaitable[T]], *told: Any, **named: Any) -> T:
        try:
            return await super().call_with_retry(do, *told, **named)
        except ResponseError as error:
            if not isinstance(error, MovedError) and "READONLY" not in str(error):  # which scripts wrap in their own
                raise
            return await super().call_with_retry(do, *told, **named)


class Connections(BlockingConnectionPool):
    """Commands wait for a free connection; the default pool would report the server as unreachable instead."""

    address: RedisAddress
    _primary: Primary | None = None
    _place: Place | None = None

    def lead_to_primary(self, address: RedisAddress) -> None:
        self.address = address
        if address.servers:
            self._primary = Primary(address, self._connecting)

    async def close_idle(self) -> None:
        """Closes idle connections without waiting: if two callers waited for the same connection and one gave up, the
        other would be cancelled too."""
        for connection in self._available_connections:
            await connection.disconnect(nowait=True)

    def make_connection(self) -> AbstractConnection:
        connection = super().make_connection()
        if self._primary is not None:
            cast(_Ours, connection).find = self._find
        return connection

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        """A former primary that stood still may take changes again until somebody tells it that it is none."""
        found = cast(_Ours, connection)
        if self._place is not None and found.is_connected and (found.host, found.port) != self._place:
            await found.disconnect(nowait=True)
        await super().ensure_connection(connection)

    async def _find(self) -> Place:
        assert self._primary is not None
        self._place = await self._primary.find()
        return self._place

    def _connecting(self, server: Place) -> AbstractConnection:
        connection = cast(_Ours, super().make_connection())
        connection.host, connection.port = server
        if self.address.kind == "sentinel":  # they have users of their own, and no databases
            connection.db = 0
            connection.username, connection.password = self.address.sentinel_username, self.address.sentinel_password
        return connection


def connect_bytes(url: str) -> Redis:
    """A client whose values are bytes; does not connect yet."""
    return open_client(url, connect_seconds=ANSWER_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=False)


def open_client(url: str, *, connect_seconds: float, answer_seconds: float, decodes: bool) -> Redis:
    """A client that does not connect yet, and never retries a command that may have been run.

    A server that refuses a command is asked over a new connection the next time: after a failover, the address leads to
    the new primary, and open connections to the old one, which refuses every write.

    The pool does not await maintenance notices: otherwise it would hand out connections that the server has closed, as
    those notices too are something to read, and after a restart each would fail one request.
    """
    address = split_redis_url(url)
    pool = Connections.from_url(
        address.url,
        max_connections=CONNECTIONS,
        timeout=answer_seconds,
        decode_responses=decodes,
        socket_connect_timeout=connect_seconds,
        socket_timeout=answer_seconds,
        retry=_Redirected(NoBackoff(), 0),
        retry_on_error=[ResponseError],  # with no retry, it only closes the connection
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    pool.connection_class = CLASSES[pool.connection_class]
    pool.lead_to_primary(address)
    return Redis.from_pool(pool)


def is_cluster(client: Redis) -> bool:
    return cast(Connections, client.connection_pool).address.kind == "cluster"


def rooted(client: Redis, prefix: str) -> str:
    """In a cluster all keys have one root, in braces. Elsewhere those of kept answers have always had none."""
    return prefix.replace("breakeven", ROOT, 1) if is_cluster(client) else prefix


@asynccontextmanager
async def answering(seconds: float = ANSWER_SECONDS) -> AsyncGenerator[None]:
    """Turns every error of Redis, timeouts included, into StoreDown."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except ResponseError as error:
        raise StoreDown(f"Redis rejects the command: {reason(error)}") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreDown(f"Redis does not answer ({reason(error)})") from error


def reason(error: Exception) -> str:
    """The client's message (for example a rejected certificate or a wrong password) after its class."""
    if isinstance(error, MovedError | ClusterCrossSlotError):
        return f"{type(error).__name__}: {NO_CLUSTER}"
    said = " ".join(str(error).split())[:SHOWN_CHARACTERS]
    if isinstance(error, ClusterDownError):
        return f"{type(error).__name__}: {said}; {NO_CLUSTER}"
    if isinstance(error, AskError | TryAgainError) or "non local key" in str(error):
        return f"{type(error).__name__}: {MOVING}"
    if isinstance(error.__context__, NO_FILE) and " connecting to /" not in said:  # that is a socket's path
        said += f" {NO_TLS_FILE}"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
