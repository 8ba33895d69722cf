"""Moves a process' filled memory into huge pages, which need fewer page table steps per access.

Linux allocates pages of 4 KiB and collapses them into 2 MiB on request (madvise(2), MADV_COLLAPSE, since 6.1). Weights
are read from end to end for each token, an interpreter's objects in random order; under a hypervisor each step of a
page walk needs a walk of its own (docs/decisions/huge-pages.md).
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
"""The share of a huge page that must be in use already: the rest is memory that was not used before."""
ENTRY = 8
"""Bytes per page in /proc/self/pagemap; the highest bit is set if the page is in memory."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def gather(setting: Path = SETTING) -> int:
    """Moves this process' own filled memory into huge pages; returns how many bytes are in them.

    0 if the system has none or forbids them (`never`). Call it once when everything long-lived is loaded: it takes
    about a millisecond per page.
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
        # A second try on failure: the kernel may have been using a page at that moment.
        return sum(LARGE for start in filled if any(call(start, LARGE, COLLAPSE) == 0 for _ in range(2)))
    return 0


def _large_places() -> Iterator[int]:
    """Places in this process' private anonymous memory where a huge page could begin."""
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
