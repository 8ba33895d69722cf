"""Redis clients with timeouts, both for the server and for a free connection, and the translation of their errors."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AskError, ClusterCrossSlotError, ClusterDownError, RedisError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.maint_notifications import MaintNotificationsConfig

from gateway.errors import StoreDown

CONNECTIONS = 64
ANSWER_SECONDS = 2.0
SHOWN_CHARACTERS = 200
NO_CLUSTER: Final = (
    "it is a Redis Cluster, which is not supported, since a script's keys would have to be on one node: give the "
    "address of a Redis that is not one"
)


class _LossTold(AbstractConnection):
    """Reports a lost connection as the client's ConnectionError: uvloop refuses to write to it with a RuntimeError,
    which the client passes on."""

    async def send_packed_command(self, command: bytes | str | Iterable[bytes], check_health: bool = True) -> None:
        try:
            await super().send_packed_command(command, check_health)
        except RuntimeError as error:
            raise ConnectionLost(str(error)) from error


class _Plain(_LossTold, Connection):
    pass


class _Encrypted(_LossTold, SSLConnection):
    pass


class _Local(_LossTold, UnixDomainSocketConnection):
    pass


CLASSES: Final[dict[type[AbstractConnection], type[_LossTold]]] = {
    Connection: _Plain,
    SSLConnection: _Encrypted,
    UnixDomainSocketConnection: _Local,
}


class Connections(BlockingConnectionPool):
    """Commands wait for a free connection; the default pool would report the server as unreachable instead."""

    async def close_idle(self) -> None:
        """Closes idle connections without waiting: if two callers waited for the same connection and one gave up, the
        other would be cancelled too."""
        for connection in self._available_connections:
            await connection.disconnect(nowait=True)


def connect_bytes(url: str) -> "Redis":
    """A client whose values are bytes; does not connect yet."""
    return open_client(url, connect_seconds=ANSWER_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=False)


def open_client(url: str, *, connect_seconds: float, answer_seconds: float, decodes: bool) -> "Redis":
    """A client that does not connect yet, and never retries by itself.

    A server that refuses a command is asked over a new connection the next time: after a failover, the address leads to
    the new primary, and open connections to the old one, which refuses every write.

    The pool does not await maintenance notices: otherwise it would hand out connections that the server has closed, as
    those notices too are something to read, and after a restart each would fail one request.
    """
    pool = Connections.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=answer_seconds,
        decode_responses=decodes,
        socket_connect_timeout=connect_seconds,
        socket_timeout=answer_seconds,
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[ResponseError],  # with no retry, it only closes the connection
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    pool.connection_class = CLASSES[pool.connection_class]
    return Redis.from_pool(pool)


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
    if isinstance(error, AskError | ClusterCrossSlotError | ClusterDownError):  # MovedError is an AskError
        return f"{type(error).__name__}: {NO_CLUSTER}"
    said = " ".join(str(error).split())[:SHOWN_CHARACTERS]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
