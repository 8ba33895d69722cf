"""Kept responses or conversations of one process, on disk so that they survive a restart. A thread accesses the file,
without blocking the event loop.

Recent ones are cached in memory, since reading a long conversation turn by turn would wait for the thread each time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

from gateway.errors import StoreDown
from gateway.kept_answers.expiring import Expiring
from gateway.kept_answers.memory_turns import OVERHEAD_BYTES
from gateway.kept_answers.record_store import Change
from gateway.process.tasks import to_its_end
from gateway.storage.turns.turn_file import RENEWED_SHARE, TurnFile

log = logging.getLogger(__name__)
T = TypeVar("T")
PATIENCE_SECONDS: Final = 5.0
"""How long a request waits to read previous turns, and the end of an answer to store its own. Not shorter, since the
journal on the same disk makes answers wait too."""
CHORE_SECONDS: Final = 20.0
"""Timeout of background work, for which no answer waits."""


@dataclass(slots=True)
class _Recent:
    value: bytes
    renewed_at: float
    """When its time in the file was last extended."""

    @property
    def size(self) -> int:
        return OVERHEAD_BYTES + len(self.value)


class DiskTurns:
    """See TurnStore and RecordStore. No other process may write to the file."""

    def __init__(
        self,
        file: TurnFile,
        *,
        memory_bytes: int = 64 << 20,
        patience_seconds: float = PATIENCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = file
        self._patience_seconds = patience_seconds
        self._monotonic = monotonic
        self._recent: Expiring[_Recent] = Expiring(lambda one: one.size, max_bytes=memory_bytes, monotonic=monotonic)
        self._thread = ThreadPoolExecutor(1, "kept-responses")
        self._busy_since: float | None = None
        self._emptying: asyncio.Future[None] | None = None
        self._is_tidying = False
        self._is_closed = False

    def open(self) -> None:
        """Blocks. Starts the thread at once: later a container at its thread limit would refuse. Unusable after
        StoreDown was raised."""
        try:
            self._thread.submit(self._file.open).result()
        except StoreDown:
            self._thread.shutdown()
            raise

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        recent = self._recent.get(name, renewed_seconds=seconds)
        if recent is not None:
            if seconds is not None:
                self._renew_later(name, recent, seconds)
            return recent.value
        found = await self._ask(lambda: self._file.get(name, seconds))
        if found is not None and seconds is not None:
            self._recent.put(name, _Recent(found, self._monotonic()), seconds)
        self._tidy_later()
        return found

    async def put(self, name: str, value: bytes, seconds: float, *, owner: str = "") -> None:
        self._recent.drop(name)
        await self._ask(lambda: self._file.put(name, value, seconds, owner=owner))
        self._recent.put(name, _Recent(value, self._monotonic()), seconds)
        self._tidy_later()

    async def swap(self, change: Change, seconds: float) -> bool:
        # If its caller left meanwhile, an old value might be cached, or what was erased might stay in the log.
        return await to_its_end(self._swap(change, seconds))

    async def delete(self, name: str, *, owner: str = "") -> bool:
        return await to_its_end(self._delete(name))

    async def forget(self) -> None:
        """Deletes everything expired, in steps, so that others are served in between. Raises StoreDown."""
        while await self._ask(self._file.forget, CHORE_SECONDS):
            pass
        await self._ask(self._file.tidy, CHORE_SECONDS)

    async def aclose(self) -> None:
        try:
            await self._ask(self._file.close, CHORE_SECONDS)
        except StoreDown as error:
            log.warning("the newest stored responses may be lost: %s", error)
        self._is_closed = True
        self._thread.shutdown(wait=False)

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._recent.drop(name)

    async def _swap(self, change: Change, seconds: float) -> bool:
        names = (change.name, *change.beside, *change.gone)
        self._drop(names)
        try:
            is_swapped = await self._ask(lambda: self._file.swap(change, seconds))
        finally:
            self._drop(names)  # a concurrent `get` may have cached the old values
        if is_swapped:
            own = {} if change.value is None else {change.name: change.value}
            for name, value in {**change.beside, **own}.items():
                self._recent.put(name, _Recent(value, self._monotonic()), seconds)
            self._tidy_later()
            if change.erases:
                await self._empty_log()
        return is_swapped

    async def _delete(self, name: str) -> bool:
        self._recent.drop(name)
        try:
            was_there = await self._ask(lambda: self._file.delete(name))
            if was_there:
                await self._empty_log()
            return was_there
        finally:
            self._recent.drop(name)  # a concurrent `get` may have cached it

    async def _empty_log(self) -> None:
        """Empties the log once for all deletions before it starts: once per deletion, at a hundred deletions per
        second, made them wait five seconds."""
        emptying = self._emptying
        if emptying is None or emptying.done():
            emptying = self._emptying = asyncio.ensure_future(self._ask(self._empty_log_here))
        await asyncio.shield(emptying)

    def _empty_log_here(self) -> None:
        """Runs in the thread."""
        self._emptying = None  # deletions from now on need another run
        self._file.empty_log()

    async def _ask(self, ask: Callable[[], T], seconds: float | None = None) -> T:
        """Runs `ask` in the thread. While the disk does not answer, nothing more is queued."""
        patience = self._patience_seconds if seconds is None else seconds
        if self._is_closed:
            raise StoreDown("the gateway is stopping")
        if self._is_silent(patience):
            raise StoreDown("the disk of the stored responses does not respond")
        try:
            async with asyncio.timeout(patience):
                return await asyncio.get_running_loop().run_in_executor(self._thread, self._timed, ask)
        except TimeoutError as error:
            raise StoreDown(f"the disk of the stored responses took longer than {patience} s") from error

    def _timed(self, ask: Callable[[], T]) -> T:
        self._busy_since = self._monotonic()
        try:
            return ask()
        finally:
            self._busy_since = None

    def _is_silent(self, patience_seconds: float) -> bool:
        since = self._busy_since
        return since is not None and self._monotonic() - since > patience_seconds

    def _renew_later(self, name: str, recent: _Recent, seconds: float) -> None:
        """Extends its time in the file, in the background, once RENEWED_SHARE of it has passed."""
        now = self._monotonic()
        if self._is_closed or self._is_silent(self._patience_seconds):
            return
        if now - recent.renewed_at > seconds * RENEWED_SHARE:
            recent.renewed_at = now
            self._thread.submit(self._timed, lambda: self._renew(name, seconds))
            self._tidy_later()

    def _renew(self, name: str, seconds: float) -> None:
        try:
            self._file.renew(name, seconds)
        except StoreDown as error:
            log.warning("a stored response was read, but its time could not be extended: %s", error)

    def _tidy_later(self) -> None:
        """Runs after the operations already queued, since it waits for the disk."""
        if self._file.is_untidy and not (self._is_tidying or self._is_closed):
            self._is_tidying = True
            self._thread.submit(self._timed, self._tidy)

    def _tidy(self) -> None:
        try:
            self._file.tidy()
        except StoreDown as error:
            log.warning("the write-ahead log of the stored responses could not be emptied: %s", error)
        finally:
            self._is_tidying = False
