"""A Redis client whose values are bytes, and its failures in our words."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.errors import StoreDown

ANSWER_SECONDS = 2.0


def connect_bytes(url: str) -> "Redis":
    """Nothing is connected yet, and nothing is tried twice behind our back."""
    return Redis.from_url(
        url, socket_connect_timeout=ANSWER_SECONDS, socket_timeout=ANSWER_SECONDS, retry=Retry(NoBackoff(), 0)
    )


@asynccontextmanager
async def answering(seconds: float = ANSWER_SECONDS) -> AsyncGenerator[None]:
    """Whatever is wrong with Redis becomes StoreDown; a silent one is given up on."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (RedisError, OSError, TimeoutError) as error:
        raise StoreDown(f"Redis does not answer ({type(error).__name__})") from error
