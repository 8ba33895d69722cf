"""Syncs the journal's files without blocking the event loop: in a thread of C++, or of Python without a compiler.

Knows files, not what is in them.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol

from gateway.ledger.disk import DiskFile, sync_all
from gateway.ledger.native.native_thread import NativeThread

log = logging.getLogger(__name__)
Done = Callable[[OSError | None], None]


class Syncer(Protocol):
    """Syncs one group of files at a time. Call it from one event loop."""

    def start(self, files: Sequence[DiskFile], done: Done) -> None:
        """Sync `files` in order, then call `done(None)` on the loop; the first error stops and goes to `done` instead.

        `done` may be called before this returns. Never start while a group is under way, nor after an error.
        """
        ...

    async def aclose(self) -> None:
        """Release resources. No group may be under way."""
        ...


class SyncQueue(Protocol):
    """What QueueSyncer asks; see NativeThread for the contract."""

    def fileno(self) -> int: ...

    def submit(self, file: DiskFile) -> None: ...

    def take(self) -> bool: ...

    def close(self) -> None: ...


class QueueSyncer:
    """Who is asked signals an eventfd, which the loop watches like a socket."""

    def __init__(self, queue: SyncQueue) -> None:
        self._queue = queue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._files: Iterator[DiskFile] = iter(())
        self._done: Done | None = None

    def start(self, files: Sequence[DiskFile], done: Done) -> None:
        assert self._done is None, "a group is under way"
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._queue.fileno(), self._hear)
        self._files, self._done = iter(files), done
        self._go_on()

    def _hear(self) -> None:
        try:
            has_ended = self._queue.take()
        except OSError as error:
            self._forget()
            self._end(error)
            return
        if has_ended:
            self._go_on()

    def _go_on(self) -> None:
        file = next(self._files, None)
        if file is None:
            self._end(None)
            return
        try:
            self._queue.submit(file)
        except OSError as error:
            self._end(error)

    def _end(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        assert done is not None, "told of a sync that nobody asked for"
        done(error)

    def _forget(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._queue.fileno())

    async def aclose(self) -> None:
        self._forget()
        await asyncio.to_thread(self._queue.close)


class ThreadSyncer:
    """A thread of Python's syncs. Works everywhere, but each hand-off to the loop costs more than the sync."""

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or one_thread("journal-sync")

    def start(self, files: Sequence[DiskFile], done: Done) -> None:
        running = asyncio.get_running_loop().run_in_executor(self._executor, sync_all, files)
        running.add_done_callback(lambda future: done(_error_of(future)))

    async def aclose(self) -> None:
        await asyncio.to_thread(self._executor.shutdown)


def one_thread(name: str) -> Executor:
    """Starts its thread at once: a container at its thread limit would refuse later, and the journal could not sync."""
    executor = ThreadPoolExecutor(1, name)
    executor.submit(int)
    return executor


def choose_syncer(file: DiskFile) -> Syncer:
    """A thread of C++ if this file has a descriptor and there is such a thread here, else one of Python."""
    try:
        file.fileno()
        syncer = QueueSyncer(NativeThread())
    except OSError as refusal:
        level = logging.WARNING if sys.platform == "linux" else logging.INFO  # other systems never have one
        log.log(level, "a thread of Python's syncs the journal, which costs more CPU: %s", refusal.strerror)
        return ThreadSyncer()
    log.info("a thread of C++ syncs the journal")
    return syncer


def _error_of(sync: asyncio.Future[None]) -> OSError | None:
    error = OSError("the sync was cancelled") if sync.cancelled() else sync.exception()
    return error if error is None or isinstance(error, OSError) else OSError(repr(error))
