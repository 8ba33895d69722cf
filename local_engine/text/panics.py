"""Panics of the libraries that are written in Rust, as exceptions that a fault of a text or a file may be."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def panics_told() -> Generator[None]:
    """Raise ValueError for a panic, which is no Exception: nobody would catch it."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # pyo3's; no module has it to import
            raise
        raise ValueError(str(error)) from error
