"""Syncs the journal's files without blocking the event loop: through kernel AIO, or a thread where that is unavailable.

Knows files, not what is in them.
"""

import asyncio
import logging
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

from gateway.ledger.disk import DiskFile, LocalFile, sync_all
from gateway.ledger.kernel_queue import KernelQueue

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
    """What KernelSyncer needs of the kernel; see KernelQueue for the contract."""

    def fileno(self) -> int: ...

    def submit(self, file: DiskFile) -> None: ...

    def take(self) -> bool: ...

    def close(self) -> None: ...


class KernelRefused(Exception):
    """The kernel does not sync such files asynchronously; the message says why."""


class KernelSyncer:
    """The kernel syncs and signals an eventfd, which the loop watches like a socket."""

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
        assert done is not None, "the kernel told of a sync that nobody asked for"
        done(error)

    def _forget(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._queue.fileno())

    async def aclose(self) -> None:
        self._forget()
        await asyncio.to_thread(self._queue.close)


class ThreadSyncer:
    """A thread syncs. Works everywhere, but each hand-off between thread and loop costs more than the sync."""

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
    """The kernel if it can sync this file asynchronously, else a thread. Raises OSError when the trial sync fails."""
    try:
        syncer = KernelSyncer(open_queue(file))
    except KernelRefused as refusal:
        level = logging.WARNING if sys.platform == "linux" else logging.INFO  # other systems never do
        log.log(level, "a thread syncs the journal, because the kernel does not by itself: %s", refusal)
        return ThreadSyncer()
    log.info("the kernel syncs the journal, without a thread")
    return syncer


def open_queue(file: DiskFile) -> KernelQueue:
    """A queue proven by a sync of `file`. Raises KernelRefused, or OSError when the sync began and failed."""
    try:
        file.fileno()
        queue = KernelQueue()
    except OSError as error:
        raise KernelRefused(error.strerror) from error
    try:
        try:
            queue.submit(file)
        except OSError as error:
            raise KernelRefused(error.strerror) from error
        bell = select.poll()
        bell.register(queue.fileno(), select.POLLIN)
        while not queue.take():
            bell.poll()
    except (OSError, KernelRefused):
        queue.close()
        raise
    return queue


def why_no_kernel(directory: Path) -> str | None:
    """Why the kernel cannot sync files of this directory asynchronously; None if it can. Raises OSError."""
    with NamedTemporaryFile(dir=directory, prefix="sync-trial-") as made:
        file = LocalFile(Path(made.name))
        try:
            open_queue(file).close()
        except KernelRefused as refusal:
            return str(refusal)
        finally:
            file.close()
    return None


def _error_of(sync: asyncio.Future[None]) -> OSError | None:
    error = OSError("the sync was cancelled") if sync.cancelled() else sync.exception()
    return error if error is None or isinstance(error, OSError) else OSError(repr(error))
