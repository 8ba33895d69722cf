"""Redis clients that wait no longer than they are told to, for the server or for one of their connections."""

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

CONNECTIONS = 64


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
