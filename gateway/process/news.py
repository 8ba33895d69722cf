"""Immediate notice that keys or rules changed elsewhere; the database is checked twice a second in any case."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class News(Protocol):
    """Says only that something changed; what changed is in the database."""

    async def announce(self) -> None:
        """Notify all workers of all replicas. Never raises: those who miss it check the database anyway."""
        ...

    async def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` for every announcement, until cancelled."""
        ...


class NoNews:
    """For a single process."""

    async def announce(self) -> None:
        """There is nobody to notify."""

    async def listen(self, heard: Callable[[], None]) -> None:
        await asyncio.Event().wait()
