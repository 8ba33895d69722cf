"""Makes Python's cycle collector run rarely, and skip what a process created before it served.

A full collection runs whenever long-lived objects have grown by a quarter. A serving process has hundreds of thousands
of objects before its first request, and hundreds per request in progress: with 64 at once, collections took a third of
a gateway's CPU and paused everyone for 0.15 s at a time (docs/decisions/searching-for-cycles.md).
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

OBJECTS: Final = (10_000, 5, 4)
"""Thresholds: net new objects before a young collection, young ones before a middle one, middle ones before a full one.
So 200,000 objects may be garbage in cycles; successful requests leave none, failed ones their traceback."""


def search_seldom() -> None:
    """Call once when everything long-lived is loaded, before serving. Takes about a tenth of a second."""
    gc.collect()
    gc.freeze()
    search_seldom_while_loading()


def search_seldom_while_loading() -> None:
    """Call before a process' modules are imported: they stay, and collecting among them repeatedly took an eighth of
    the start."""
    gc.set_threshold(*OBJECTS)


@contextmanager
def unsearched() -> Generator[None]:
    """No collection in the block, and what it imports is never examined: it stays. Of a gateway's 250,000 objects a
    thousand are garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        search_seldom_while_loading()
