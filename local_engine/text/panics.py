"""Converts panics of Rust libraries to ordinary exceptions, as malformed text or files may cause them."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def panics_told() -> Generator[None]:
    """Raises ValueError for a panic, whose own type is no Exception, so that nobody would catch it."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3's; no module exports it
            raise
        raise ValueError(str(error)) from error
