"""Composition root: what workers share, through Redis if configured, otherwise nothing."""

import socket
from dataclasses import dataclass
from pathlib import Path

from gateway.config.home import Home
from gateway.limits.counters import Counters
from gateway.limits.local_counters import LocalCounters
from gateway.process.news import News, NoNews
from gateway.storage.pepper import pepper_mark
from gateway.upstreams.shared_prefixes import PrefixChannel


@dataclass(frozen=True, slots=True)
class Sharing:
    """Shared parts of one worker; `prefixes` is None if there is nobody to share with. The parts close what they
    opened."""

    counters: Counters
    news: News
    prefixes: PrefixChannel | None = None

    async def aclose(self) -> None:
        await self.counters.aclose()
        if self.prefixes is not None:
            await self.prefixes.aclose()


def open_sharing(url: str | None, *, home: Home, journal: Path, workers: int) -> Sharing:
    """`journal` is the directory claimed by this worker, `workers` the number in this replica. Nothing is connected
    yet."""
    if url is None:
        return Sharing(LocalCounters(), NoNews())
    # Of an extra: see require_clients.
    from gateway.storage.redis.client import connect_bytes
    from gateway.storage.redis.counters import RedisCounters, connect
    from gateway.storage.redis.news import RedisNews
    from gateway.storage.redis.prefixes import RedisPrefixes

    # A restarted worker claims the same directory and so finds its holdings under the same name.
    replica = f"{socket.gethostname()}:{home.replica_id()}:{journal.resolve().parent}"
    worker = f"{replica}/{journal.name}"
    return Sharing(
        RedisCounters(connect(url), worker=worker, fleet=pepper_mark(home.pepper()), workers=workers),
        RedisNews(connect(url)),
        RedisPrefixes(connect_bytes(url), replica=replica),
    )
