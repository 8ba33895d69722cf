"""News over Redis' publish and subscribe; see gateway.process.news. Reconnects forever, and misses news meanwhile."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.storage.redis.counters import PREFIX

log = logging.getLogger(__name__)
CHANNEL = f"{PREFIX}news"
AGAIN_SECONDS = 0.5
HEAR_SECONDS = 1.0


class RedisNews:
    """Implements News. `client` must be its own: a subscription waits longer than a command may."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def announce(self) -> None:
        try:
            await self._client.publish(CHANNEL, "changed")
        except (RedisError, OSError) as error:
            log.warning("cannot announce a change over Redis (%s); other workers will find it in the database", error)

    async def listen(self, heard: Callable[[], None]) -> None:
        while True:
            with contextlib.suppress(RedisError, OSError):
                await self._listen_once(heard)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _listen_once(self, heard: Callable[[], None]) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(CHANNEL)
            heard()  # something may have been announced while nobody listened
            while True:
                if await subscription.get_message(timeout=HEAR_SECONDS) is not None:
                    heard()
