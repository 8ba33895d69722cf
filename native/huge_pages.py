"""What a process has filled and will keep reading, in large pages: the processor finds it in fewer steps.

Linux hands memory out in pages of 4 KiB and gives those who ask for it pages of 2 MiB afterwards (madvise(2),
MADV_COLLAPSE, since 6.1). Weights are read from one end to the other for each token, an interpreter's objects all over
the place; under a hypervisor each step of the search for a page is a search of its own (docs/decisions/huge-pages.md).
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress
from mmap import PAGESIZE
from pathlib import Path
from typing import BinaryIO

COLLAPSE = 25  # MADV_COLLAPSE, linux/mman.h
LARGE = 2 << 20
FILLED = 0.875
"""What of a large page must hold something already: the rest is memory that was not used before."""
ENTRY = 8
"""Bytes that /proc/self/pagemap has for a page; the highest bit is set where it is in memory."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def gather(setting: Path = SETTING) -> int:
    """Put what is filled of this process's own memory into large pages; how many bytes lie in them then.

    0 where the system has none, or was told to give none to anybody (`never`). Call it once what lasts is loaded: it
    takes about a millisecond for each page.
    """
    if sys.platform != "linux":
        return 0
    with suppress(OSError, ValueError):
        if "[never]" in setting.read_text(encoding="ascii"):
            return 0
        call = ctypes.CDLL(None).madvise
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pages:
            filled = [start for start in _large_places() if _filled(pages, start) >= FILLED]
        # Once more where it fails: the kernel may have had a page in its hands at that moment.
        return sum(LARGE for start in filled if any(call(start, LARGE, COLLAPSE) == 0 for _ in range(2)))
    return 0


def _large_places() -> Iterator[int]:
    """Where in this process's private memory, which no file is behind, a large page could begin."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, access, _, _, _, *name = line.split(maxsplit=5)
        if access != "rw-p" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(bound, 16) for bound in span.split("-"))
        yield from range(-(-start // LARGE) * LARGE, end - LARGE + 1, LARGE)


def _filled(pages: BinaryIO, start: int) -> float:
    """The share of the small pages from `start` on that are in memory."""
    pages.seek(start // PAGESIZE * ENTRY)
    entries = pages.read(LARGE // PAGESIZE * ENTRY)
    return sum(highest >> 7 for highest in entries[ENTRY - 1 :: ENTRY]) / (LARGE // PAGESIZE)
