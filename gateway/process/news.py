"""How a worker hears at once that keys or rules changed elsewhere; the database is looked at twice a second anyhow."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class News(Protocol):
    """Says only that something changed: what it is stands in the database."""

    async def announce(self) -> None:
        """Tell all workers of all replicas. Never raises: who does not hear it looks for itself."""
        ...

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` for every announcement, until cancelled."""
        ...


class NoNews:
    """For a process that is alone."""

    async def announce(self) -> None:
        """There is nobody to tell."""

    async def listen(self, heard: Callable[[], None]) -> None:
        await asyncio.Event().wait()
