"""Syncs in a thread of C++, which takes no turn with the interpreter. Linux only. Knows nothing of the event loop."""

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Final

from gateway.ledger.disk import DiskFile
from native.library import find_compiler, load_library

SOURCE: Final = Path(__file__).parent / "sync_thread.cpp"
FLAGS: Final = ("-O2", "-std=c++17", "-fPIC", "-pthread")
_UNDER_WAY: Final = -1


class NativeThread:
    """One sync at a time. Raises OSError, with the reason, where there is none: see `why_no_native_thread`."""

    def __init__(self) -> None:
        if why := why_no_native_thread():
            raise OSError(errno.ENOSYS, why)
        # Only its end blocks; for the others, releasing the GIL would cost more than the call itself.
        quick, slow = _load(keeps_lock=True), _load(keeps_lock=False)
        assert quick is not None
        assert slow is not None
        self._submit, self._take = quick.breakeven_sync_thread_submit, quick.breakeven_sync_thread_take
        self._free = slow.breakeven_sync_thread_free
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = ctypes.c_void_p(quick.breakeven_sync_thread_new(self._bell))
        if not self._thread:
            os.close(self._bell)
            raise OSError(errno.EAGAIN, "no more threads are allowed")

    def fileno(self) -> int:
        """An eventfd that becomes readable when a sync has ended."""
        return self._bell

    def submit(self, file: DiskFile) -> None:
        """Start syncing what was written to `file`. Raises OSError if it was not started."""
        if refusal := self._submit(self._thread, file.fileno()):
            raise OSError(refusal, os.strerror(refusal))

    def take(self) -> bool:
        """Whether the sync under way has ended. Raises OSError when it failed."""
        result = self._take(self._thread)
        if result > 0:
            raise OSError(result, os.strerror(result))
        return result != _UNDER_WAY

    def close(self) -> None:
        """Waits for a sync still under way."""
        self._free(self._thread)
        os.close(self._bell)


def why_no_native_thread() -> str | None:
    """Why this machine has none; None if it has."""
    if sys.platform != "linux":
        return f"not written for {sys.platform}"
    if _load(keeps_lock=True) is None:
        return "no C++ compiler: install g++" if find_compiler() is None else "the C++ compiler cannot compile it"
    return None


@cache
def _load(*, keeps_lock: bool) -> ctypes.CDLL | None:
    library = load_library(SOURCE, FLAGS, link=("-pthread",), keeps_lock=keeps_lock)
    if library is not None:
        library.breakeven_sync_thread_new.argtypes = [ctypes.c_int]
        library.breakeven_sync_thread_new.restype = ctypes.c_void_p
        library.breakeven_sync_thread_submit.argtypes = [ctypes.c_void_p, ctypes.c_int]
        library.breakeven_sync_thread_submit.restype = ctypes.c_int
        library.breakeven_sync_thread_take.argtypes = [ctypes.c_void_p]
        library.breakeven_sync_thread_take.restype = ctypes.c_int
        library.breakeven_sync_thread_free.argtypes = [ctypes.c_void_p]
        library.breakeven_sync_thread_free.restype = None
    return library
