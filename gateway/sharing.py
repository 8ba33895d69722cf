"""The part of the composition root that names what workers share: through Redis where there is one, else nothing."""

import socket
from dataclasses import dataclass
from pathlib import Path

from gateway.counters import Counters
from gateway.errors import StateError
from gateway.local_counters import LocalCounters
from gateway.news import News, NoNews


@dataclass(frozen=True, slots=True)
class Sharing:
    """Of one worker. Its counters close what they opened."""

    counters: Counters
    news: News


def open_sharing(url: str | None, *, journal: Path, workers: int) -> Sharing:
    """`journal` is the directory this worker claimed; `workers` how many this replica runs. Nothing is connected yet.

    Raises StateError when Redis is configured and its client is not installed.
    """
    if url is None:
        return Sharing(LocalCounters(), NoNews())
    try:
        from gateway.storage.redis_counters import RedisCounters, connect
        from gateway.storage.redis_news import RedisNews
    except ModuleNotFoundError as error:
        raise StateError(f"Redis is configured and {error.name} is missing: pip install 'breakeven[redis]'") from error
    # A worker that is started again claims the same directory and so finds what it held under the same name.
    worker = f"{socket.gethostname()}:{journal.resolve()}"
    return Sharing(RedisCounters(connect(url), worker=worker, workers=workers), RedisNews(connect(url)))
