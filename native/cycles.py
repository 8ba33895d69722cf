"""How often Python searches what is alive for cycles: seldom, and not among what a process made before it served.

It searches everything whenever a quarter more has lasted. A serving process makes hundreds of thousands of objects
before its first request, and hundreds for each request that is under way: with 64 of those at once the search took a
third of a gateway's CPU and held everybody up for 0.15 s at a time (docs/decisions/searching-for-cycles.md).
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

OBJECTS: Final = (10_000, 5, 4)
"""Made beyond those that were freed, before the youngest are searched; how often that, before the older are; how often
those, before all are. So 200,000 may lie in cycles: what is answered leaves none, what fails its traceback."""


def search_seldom() -> None:
    """Call it once what lasts is loaded and before anything is served. Takes about a tenth of a second."""
    gc.collect()
    gc.freeze()
    search_seldom_while_loading()


def search_seldom_while_loading() -> None:
    """Call it before what a process is made of is imported: that stays, and to search it again and again was an eighth
    of what a start takes."""
    gc.set_threshold(*OBJECTS)


@contextmanager
def unsearched() -> Generator[None]:
    """Nobody looks for cycles among what is imported in the block, then or ever after: it stays. A thousand of a
    gateway's 250,000 objects are garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        search_seldom_while_loading()
