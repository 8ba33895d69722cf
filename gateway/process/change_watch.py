"""Picks up changes of keys and rules made elsewhere: at once when notified, otherwise within half a second."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from gateway.errors import DatabaseDown
from gateway.process.news import News

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 30.0
"""A silent database connection must not keep a revoked key valid for as long as a report may take."""
REFRESH_SECONDS = 30.0
"""Refresh this often even if nothing seems to have changed."""
SPACING_SECONDS = 0.05
"""Minimum spacing of lookups caused by unknown keys, however many come."""
CATCH_UP_SECONDS = 2.0


class ChangeWatch:
    """`head` returns a number that grows with every change of keys and rules (the audit log's last record)."""

    def __init__(
        self,
        news: News,
        *,
        head: Callable[[], Awaitable[int]],
        refresh: Callable[[], Awaitable[None]],
        follow_file: Callable[[], Awaitable[None]],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._news = news
        self._head = head
        self._refresh = refresh
        self._follow_file = follow_file
        self._monotonic = monotonic
        self._sleep = sleep
        self._looking = asyncio.Lock()
        self._next: asyncio.Task[bool] | None = None
        self._caught_up_at = float("-inf")
        self._woken = asyncio.Event()
        self._is_told = False
        self._untold = asyncio.Event()
        self._seen: int | None = None
        self._refreshed_at = float("-inf")
        self._problem: str | None = None

    async def listen(self) -> None:
        """Receive announcements of others; until cancelled."""
        await self._news.listen(self._hear)

    async def tell(self) -> None:
        """Announce changes made here; until cancelled. No lookup waits for this: while Redis hangs, a revoked key would
        stay valid longer, and a new one unknown."""
        while True:
            await self._untold.wait()
            self._untold.clear()
            await self._news.announce()

    async def run(self) -> None:
        """Look when notified, and twice a second; until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.look()
            except (DatabaseDown, TimeoutError) as error:
                self._tell(str(error) or f"the database did not answer within {ANSWER_SECONDS:.0f} s")
                await asyncio.sleep(LOOK_SECONDS)
            except Exception:
                log.exception("cannot read keys and rules from the database; the last known ones stay in force")
                await asyncio.sleep(LOOK_SECONDS)
            else:
                self._tell(None)

    @property
    def is_blind(self) -> bool:
        """Whether the database could not be read the last time."""
        return self._problem is not None

    def wake(self) -> None:
        """Something changed here: look soon, and notify the others."""
        self._woken.set()

    async def catch_up(self) -> bool:
        """Pick up everything changed before now; False if the database is too slow or down. Callers that come before
        the next lookup begins share it."""
        if self._next is None:
            self._next = asyncio.create_task(self._look_next(), name="keys and rules, looked at for a new key")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                return await asyncio.shield(self._next)
        return False

    async def _look_next(self) -> bool:
        await self._sleep(max(0.0, self._caught_up_at + SPACING_SECONDS - self._monotonic()))
        async with self._looking:
            self._next = None  # later callers need a later lookup
            self._caught_up_at = self._monotonic()
            try:
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self._look()
                return True
            except (DatabaseDown, TimeoutError) as error:
                log.debug("keys and rules cannot be looked at now (%s); the next look in turn tells of it", error)
            except Exception:
                log.exception("cannot read keys and rules from the database; the last known ones stay in force")
        return False

    async def look(self) -> None:
        """Pick up changes; `tell` then announces those that others have not heard of."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        is_told, self._is_told = self._is_told, False
        head = await self._head()
        if head == self._seen and self._monotonic() - self._refreshed_at < REFRESH_SECONDS:
            await self._follow_file()
            return
        await self._refresh()
        is_new = self._seen is not None and head != self._seen
        self._seen, self._refreshed_at = head, self._monotonic()
        if is_new and not is_told:
            self._untold.set()

    def _tell(self, problem: str | None) -> None:
        """Log a problem once when it begins, and once when it is over."""
        if problem is not None and self._problem is None:
            log.error("keys and rules cannot be read, the last known ones stay in force: %s", problem)
        elif problem is None and self._problem is not None:
            log.warning("keys and rules are read from the database again")
        self._problem = problem

    def _hear(self) -> None:
        self._is_told = True
        self._woken.set()
