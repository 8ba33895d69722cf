"""Makes what was appended durable: who waits together shares a sync.

1. Settlements of one turn of the event loop share a sync, and those that arrive while it runs the next one; there is no
   timer.
2. A failed sync is never retried: the kernel may have dropped the pages it could not write, so a second sync could
   report false success. Every waiter gets the error, now and later.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from gateway.errors import LedgerUnavailable
from gateway.ledger.segments import Position, Segments
from gateway.ledger.sync_pace import SyncPace
from gateway.ledger.sync_watch import SyncWatch
from gateway.ledger.syncing import Syncer


class GroupCommit:
    """The syncs of one journal's segments. Use it from one event loop only."""

    def __init__(
        self,
        segments: Segments,
        syncer: Syncer,
        watch: SyncWatch,
        *,
        on_durable: Callable[[], None],
        on_failure: Callable[[OSError], None],
        clock: Callable[[], float],
    ) -> None:
        """`on_durable` is called after each sync, before those who waited for it; `on_failure` once, if one fails. All
        that is in `segments` already is taken for durable."""
        self._segments = segments
        self._syncer = syncer
        self._watch = watch
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._is_syncing = False
        self._began = 0.0
        self.durable = segments.end
        self.failure: OSError | None = None
        self.syncs = 0
        self.pace = SyncPace()

    @property
    def is_silent(self) -> bool:
        """Whether the disk has left a sync unanswered for seconds."""
        return self._watch.is_silent

    @property
    def sync_seconds(self) -> float:
        """What a sync has recently taken, or the present one so far if the disk does not answer."""
        return self._clock() - self._began if self.is_silent else self.pace.usual_seconds

    def require_synced(self) -> None:
        """Raises LedgerUnavailable if a sync failed."""
        if self.failure is not None:
            raise _stopped(self.failure)

    async def committed(self) -> None:
        """Returns once everything appended before this call is durable. Raises LedgerUnavailable if it cannot be."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append(done)
        if not self._is_syncing:
            self._is_syncing = True
            loop.call_soon(self._start)
        await done

    async def aclose(self) -> None:
        """No sync may be under way."""
        self._watch.close()
        await self._syncer.aclose()

    def _start(self) -> None:
        group, self._waiting = self._waiting, []
        files = self._segments.take_dirty()
        self._is_syncing, self._began = True, self._clock()
        self._watch.began()
        self._syncer.start(files, partial(self._finish, group, self._segments.end))

    def _finish(self, group: list[asyncio.Future[None]], end: Position, error: OSError | None) -> None:
        self._is_syncing = False
        self._watch.ended()
        if error is not None:
            self._stop(error, group)
            return
        self.syncs += 1
        self.pace.took(self._clock() - self._began)
        self.durable = end
        self._on_durable()
        for done in group:
            if not done.done():
                done.set_result(None)
        if self._waiting:
            self._start()

    def _stop(self, error: OSError, group: Sequence[asyncio.Future[None]]) -> None:
        is_first = self.failure is None
        self.failure = self.failure or error
        waiting, self._waiting = self._waiting, []
        for done in (*group, *waiting):
            if not done.done():
                done.set_exception(_stopped(error))
        if is_first:
            self._on_failure(error)


def _stopped(error: OSError) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"The journal stopped after a failed sync ({error.strerror or error}); restart the process."
    )
