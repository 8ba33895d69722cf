"""Our own backends that have not come up since this process began. Must not know what starts them, or how."""

import asyncio
from collections.abc import Collection, Iterable


class Starting:
    """A backend is in it until it first answers. One that fails later is down, not starting."""

    def __init__(self, backends: Iterable[str] = ()) -> None:
        self._until_up = {name: asyncio.Event() for name in backends}

    @property
    def backends(self) -> Collection[str]:
        return self._until_up.keys()

    def __contains__(self, backend: str) -> bool:
        return backend in self._until_up

    def came_up(self, backend: str) -> None:
        """It answered: releases everyone who waits for it."""
        if (event := self._until_up.pop(backend, None)) is not None:
            event.set()

    async def wait(self, backend: str, *, seconds: float) -> bool:
        """Waits at most this long; whether it is up."""
        event = self._until_up.get(backend)
        if event is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
