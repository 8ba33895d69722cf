"""Kept responses of one process on the disk, which outlive it: one thread asks the file, and the event loop goes on."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from gateway.errors import StoreDown
from gateway.storage.turns.turn_file import TurnFile

log = logging.getLogger(__name__)
T = TypeVar("T")
PATIENCE_SECONDS: Final = 5.0
"""How long a request waits for the turns before it, and an answer's end for its own: for the journal, on the same disk,
it waits as well."""
CHORE_SECONDS: Final = 20.0
"""How long nobody's answer waits for what is done beside them."""


class DiskTurns:
    """See TurnStore."""

    def __init__(
        self,
        file: TurnFile,
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._thread = ThreadPoolExecutor(1, "kept-responses")
        self._busy_since: float | None = None
        self._is_tidying = False
        self._is_closed = False

    def open(self) -> None:
        """Blocks, and starts the thread: a full container lets none start later. Raises StoreDown, and is then over."""
        try:
            self._thread.submit(self._file.open).result()
        except StoreDown:
            self._thread.shutdown()
            raise

    async def get(self, name: str, seconds: float) -> bytes | None:
        found = await self._ask(lambda: self._file.get(name, seconds))
        self._tidy_later()
        return found

    async def put(self, name: str, value: bytes, seconds: float) -> None:
        await self._ask(lambda: self._file.put(name, value, seconds))
        self._tidy_later()

    async def delete(self, name: str) -> bool:
        return await self._ask(lambda: self._file.delete(name))

    async def forget(self) -> None:
        """Whatever is over, piece by piece, so that others are served in between. Raises StoreDown."""
        while await self._ask(self._file.forget, CHORE_SECONDS):
            pass
        await self._ask(self._file.tidy, CHORE_SECONDS)

    async def aclose(self) -> None:
        try:
            await self._ask(self._file.close, CHORE_SECONDS)
        except StoreDown as error:
            log.warning("the newest kept responses may be lost: %s", error)
        self._is_closed = True
        self._thread.shutdown(wait=False)

    async def _ask(self, ask: Callable[[], T], seconds: float | None = None) -> T:
        """In the thread. While the disk does not answer, nothing more is left there to wait for it."""
        patience = self._patience_seconds if seconds is None else seconds
        if self._is_closed:
            raise StoreDown("the gateway is about to end")
        since = self._busy_since
        if since is not None and self._monotonic() - since > patience:
            raise StoreDown("the disk of the kept responses does not answer")
        try:
            async with asyncio.timeout(patience):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, ask)
        except TimeoutError as error:
            raise StoreDown(f"the disk of the kept responses took longer than {patience} s") from error

    def _timed(self, ask: Callable[[], T]) -> T:
        self._busy_since = self._monotonic()
        try:
            return ask()
        finally:
            self._busy_since = None

    def _tidy_later(self) -> None:
        """After whoever waits for an answer now: it waits for the disk."""
        if self._file.is_untidy and not self._is_tidying:
            self._is_tidying = True
            self._thread.submit(self._timed, self._tidy)

    def _tidy(self) -> None:
        try:
            self._file.tidy()
        except StoreDown as error:
            log.warning("the log of the kept responses stays long: %s", error)
        finally:
            self._is_tidying = False
