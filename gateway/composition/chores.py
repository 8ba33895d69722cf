"""What a worker does once in a while besides serving. Knows when, not what."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gateway.errors import BreakevenError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do again and again, the first time `every_seconds` after the start."""

    name: str
    every_seconds: float
    do: Callable[[], Awaitable[object]]

    async def run(self) -> None:
        """For ever. One that fails is logged and done again at its next time."""
        while True:
            await asyncio.sleep(self.every_seconds)
            try:
                await self.do()
            except BreakevenError as error:
                log.error("%s failed (%s); tried again in %.0f s", self.name, error, self.every_seconds)
            except Exception:
                log.exception("%s failed; tried again in %.0f s", self.name, self.every_seconds)
