"""Slow work that a migration defers until the gateway serves, because a migration holds locks and must be short."""

import logging
import time

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.storage.database import LATER_LOCK, MIGRATING, open_database, take_all_the_time, try_lock
from gateway.storage.partition_indexes import build_partition_indexes
from gateway.storage.sums.ranking import rank_older_hours

log = logging.getLogger(__name__)


class LaterWork:
    """One per process. Only one process does the work; if it is killed, the next continues."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_done = False

    async def do(self) -> bool:
        """True when nothing is left, False if another process is doing it. May take long, but blocks nobody."""
        if self._is_done:
            return True
        engine = open_database(self._url, MIGRATING)
        try:
            self._is_done = await _do(engine)
        finally:
            await engine.dispose()
        return self._is_done


async def _do(engine: AsyncEngine) -> bool:
    began = time.monotonic()
    async with engine.connect() as alone, alone.begin():
        if not await try_lock(alone, LATER_LOCK):
            return False
        # Only after `try_lock`: a concurrent index build waits until every older snapshot is gone. A query's lasts
        # until the next statement; this one takes none. Nobody waits for the lock: a waiter would hold a snapshot.
        await take_all_the_time(alone)
        await build_partition_indexes(engine)
        await rank_older_hours(engine)
    if (seconds := time.monotonic() - began) > 1:
        log.info("what the schema's newest steps left to be done is done, in %.0f s", seconds)
    return True
