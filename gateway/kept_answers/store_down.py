"""How callers hear that a store of answers cannot be reached."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from gateway.errors import Overloaded, StoreDown

log = logging.getLogger(__name__)


@contextmanager
def told_as_overloaded(noted: str, said: str) -> Generator[None]:
    """Raises Overloaded in place of StoreDown: `said` is for the caller, and `noted` for the log, with the reason."""
    try:
        yield
    except StoreDown as error:
        log.warning("%s: %s", noted, error)
        raise Overloaded(said, retry_after_seconds=1.0) from error
