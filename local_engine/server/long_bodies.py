"""Processes long bodies in threads beside the event loop, abandoned at shutdown: tokenizing megabytes, compiling a
grammar of that size, or embedding thousands of texts takes seconds and cannot be interrupted."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from local_engine.errors import EngineDraining

T = TypeVar("T")
AT_ONCE: Final = 4
"""More would only be slower, and each needs many times the memory of its body."""
THREAD_NAME: Final = "long-body"
SHUTTING_DOWN: Final = "The engine is shutting down."


class LongBodies:
    """Processes some at a time; none once `is_over` is set."""

    def __init__(self, is_over: asyncio.Event) -> None:
        self._is_over = is_over
        self._places = asyncio.Semaphore(AT_ONCE)

    async def read(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises in its thread. Raises EngineDraining as soon as the process is to end."""
        async with self._places:
            if self._is_over.is_set():
                raise EngineDraining(SHUTTING_DOWN)
            reading = _begin(work)
            told = asyncio.ensure_future(self._is_over.wait())
            try:
                await asyncio.wait((reading, told), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    raise EngineDraining(SHUTTING_DOWN)
                return reading.result()
            finally:
                told.cancel()
                reading.cancel()


def are_unfinished() -> bool:
    """Whether an abandoned body is still being processed."""
    return any(thread.name == THREAD_NAME for thread in threading.enumerate())


def _begin(work: Callable[[], T]) -> asyncio.Future[T]:
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - the outermost edge of this thread: whoever waits raises it
            done.set_exception(error)

    threading.Thread(target=run, name=THREAD_NAME, daemon=True).start()
    return asyncio.wrap_future(done)
