"""What a step of the schema leaves to be done while the gateway serves: the step holds locks, and must be short."""

import logging
import time

from sqlalchemy.ext.asyncio import AsyncEngine

from gateway.storage.database import LATER_LOCK, MIGRATING, open_database, take_all_the_time, try_lock
from gateway.storage.partition_indexes import build_partition_indexes
from gateway.storage.sums.ranking import rank_older_hours

log = logging.getLogger(__name__)


class LaterWork:
    """Of one process. Of several one does it; whatever a killed one leaves is taken up by the next."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._is_done = False

    async def do(self) -> bool:
        """Whether nothing is left; False where another process is at it. May take long, and is in nobody's way."""
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
        # After that, not before: an index is built only once every older snapshot is gone. A question's lasts until the
        # next statement, and this one takes none. Nobody waits for the lock, because who waits has a snapshot too.
        await take_all_the_time(alone)
        await build_partition_indexes(engine)
        await rank_older_hours(engine)
    if (seconds := time.monotonic() - began) > 1:
        log.info("what the schema's newest steps left to be done is done, in %.0f s", seconds)
    return True
