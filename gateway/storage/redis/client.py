"""Redis clients that wait no longer than they are told to, for the server or for one of their connections; and what
goes wrong with Redis, in our words."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from gateway.errors import StoreDown

CONNECTIONS = 64
ANSWER_SECONDS = 2.0
SHOWN_CHARACTERS = 200


def connect_bytes(url: str) -> "Redis":
    """A client of that server whose values are bytes; nothing is connected yet."""
    return open_client(url, connect_seconds=ANSWER_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=False)


def open_client(url: str, *, connect_seconds: float, answer_seconds: float, decodes: bool) -> "Redis":
    """Nothing is connected yet, and nothing is tried twice behind our back.

    More commands than connections wait for their turn: redis' own pool would call the server unreachable.
    """
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=answer_seconds,
        decode_responses=decodes,
        socket_connect_timeout=connect_seconds,
        socket_timeout=answer_seconds,
        retry=Retry(NoBackoff(), 0),
    )
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
