"""A Redis client whose values are bytes, and its failures in our words."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from gateway.errors import StoreDown
from gateway.storage.redis.client import open_client

ANSWER_SECONDS = 2.0
SHOWN_CHARACTERS = 200


def connect_bytes(url: str) -> "Redis":
    """A client of that server; nothing is connected yet."""
    return open_client(url, connect_seconds=ANSWER_SECONDS, answer_seconds=ANSWER_SECONDS, decodes=False)


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
