"""A worker's background work, permanent or periodic. Knows when, not what."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.errors import BreakevenError

log = logging.getLogger(__name__)
ANEW_SECONDS = 5.0


async def lasting(name: str, work: Callable[[], Awaitable[object]]) -> None:
    """Work that never ends. If it ends unexpectedly, that is logged and it is restarted: no key would be revoked and no
    engine watched by a task that is gone."""
    while True:
        try:
            await work()
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # otherwise nobody asked for it: a future that it shared with others was cancelled by one of them
            log.exception("%s broke off; begun anew in %.0f s", name, ANEW_SECONDS)
        else:
            log.error("%s ended; begun anew in %.0f s", name, ANEW_SECONDS)
        await asyncio.sleep(ANEW_SECONDS)


@dataclass(frozen=True, slots=True)
class Chore:
    """Work to repeat, first `every_seconds` after the start."""

    name: str
    every_seconds: float
    do: Callable[[], Awaitable[object]]

    async def run(self) -> None:
        """Runs forever. A failure is logged, and the work repeated at its next time."""
        while True:
            await asyncio.sleep(self.every_seconds)
            try:
                await self.do()
            except BreakevenError as error:
                log.error("%s failed (%s); tried again in %.0f s", self.name, error, self.every_seconds)
            except Exception:
                log.exception("%s failed; tried again in %.0f s", self.name, self.every_seconds)
