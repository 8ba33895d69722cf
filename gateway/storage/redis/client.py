"""Redis clients that wait no longer than they are told to, for the server or for one of their connections; and what
goes wrong with Redis, in our words."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from gateway.errors import StoreDown

CONNECTIONS = 64
ANSWER_SECONDS = 2.0
SHOWN_CHARACTERS = 200


class _LossTold(AbstractConnection):
    """A connection that was lost says so in the client's words: uvloop refuses to write to it with a RuntimeError,
    which the client takes for a mistake and passes on."""

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
    """More commands than connections wait for their turn: redis' own pool would call the server unreachable."""

    async def close_idle(self) -> None:
        """None is waited for: where two wait for the same connection's end and one gives up, the other is cancelled."""
        for connection in self._available_connections:
            await connection.disconnect(nowait=True)


def connect_bytes(url: str) -> "Redis":
    """A client of that server whose values are bytes; nothing is connected yet."""
    return open_client(url, connect_seconds=ANSWER_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=False)


def open_client(url: str, *, connect_seconds: float, answer_seconds: float, decodes: bool) -> "Redis":
    """Nothing is connected yet, and nothing is tried twice behind our back.

    A pool that awaits notices of maintenance gives out connections that the server has closed, as those notices too are
    something to read: after a restart each would fail one request.
    """
    pool = Connections.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=answer_seconds,
        decode_responses=decodes,
        socket_connect_timeout=connect_seconds,
        socket_timeout=answer_seconds,
        retry=Retry(NoBackoff(), 0),
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
    )
    pool.connection_class = CLASSES[pool.connection_class]
    return Redis.from_pool(pool)


@asynccontextmanager
async def answering(seconds: float = ANSWER_SECONDS) -> AsyncGenerator[None]:
    """Whatever is wrong with Redis becomes StoreDown; a silent one is given up on."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except ResponseError as error:
        raise StoreDown(f"Redis refuses what it is asked: {str(error)[:SHOWN_CHARACTERS]}") from error
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreDown(f"Redis does not answer ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    """As the client tells it (a certificate that is refused, a wrong password); its class where it tells nothing."""
    said = " ".join(str(error).split())[:SHOWN_CHARACTERS]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
