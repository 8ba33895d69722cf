"""Backends of our own that have not come up since this process began; must not know what starts them, or how."""

import asyncio
from collections.abc import Collection, Iterable


class Starting:
    """Each until it first answers. One that fails later is down, not starting."""

    def __init__(self, backends: Iterable[str] = ()) -> None:
        self._until_up = {name: asyncio.Event() for name in backends}

    @property
    def backends(self) -> Collection[str]:
        return self._until_up.keys()

    def __contains__(self, backend: str) -> bool:
        return backend in self._until_up

    def came_up(self, backend: str) -> None:
        """It answered, so that nobody waits for it any more."""
        if (event := self._until_up.pop(backend, None)) is not None:
            event.set()

    async def wait(self, backend: str, *, seconds: float) -> bool:
        """Whether it is up, after at most so long."""
        event = self._until_up.get(backend)
        if event is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
