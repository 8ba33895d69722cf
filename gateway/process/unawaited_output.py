"""Process output that never waits for its reader: a stopped terminal, a pager, a log's full pipe.

Knows nothing of what is written.
"""

import contextlib
import errno
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Generator
from typing import Any, TextIO

STANDARD = (0, 1, 2)
MOST_BYTES = 256 * 1024
"""Buffer for a slow reader. Output beyond it is lost; a line in its place says how much."""
END_SECONDS = 2.0
"""How long to wait at exit for the rest to be written."""
NOBODY_THERE = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})
"""Errors after which nobody will ever read, unlike those of a full disk."""


class Output:
    """A thread writes the output in order, so that writers never wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._lost_lines = 0
        self._gone: set[int] = set()
        self._changed = threading.Condition()

    def start(self) -> None:
        """Raises RuntimeError if no thread can be started."""
        threading.Thread(target=self._run, name="output", daemon=True).start()

    def say(self, descriptor: int, said: bytes) -> None:
        with self._changed:
            if descriptor in self._gone:
                return
            if self._waiting_bytes + len(said) > MOST_BYTES:
                self._lost_lines += said.count(b"\n")
                return
            if self._lost_lines:
                self._append(descriptor, b"(%d lines are missing here: nobody read them)\n" % self._lost_lines)
                self._lost_lines = 0
            self._append(descriptor, said)
            self._changed.notify_all()

    def finish(self, seconds: float = END_SECONDS) -> None:
        """Wait at most this long until everything is written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, seconds)

    def _append(self, descriptor: int, said: bytes) -> None:
        self._waiting.append((descriptor, said))
        self._waiting_bytes += len(said)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                descriptor, said = self._waiting[0]
                is_gone = descriptor in self._gone
            is_gone = is_gone or not _write(descriptor, said)
            with self._changed:
                self._waiting.popleft()
                self._waiting_bytes -= len(said)
                if is_gone:
                    self._gone.add(descriptor)
                self._changed.notify_all()


class _Unawaited(io.RawIOBase):
    """A stream that passes everything to an Output."""

    def __init__(self, output: Output, descriptor: int) -> None:
        self._output = output
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    def write(self, said: Any, /) -> int:
        self._output.say(self._descriptor, whole := bytes(said))
        return len(whole)


@contextlib.contextmanager
def unawaited_output() -> Generator[None]:
    """Within it a thread writes standard output and error, so that readers who are slow or gone block nothing. If no
    thread can be started, the streams stay as they are."""
    open_standard_files()
    output, before = Output(), (sys.stdout, sys.stderr)
    sys.stdout, sys.stderr = _standing_for(before[0], 1), _standing_for(before[1], 2)
    try:
        with contextlib.suppress(RuntimeError):
            output.start()
            sys.stdout, sys.stderr = _instead_of(sys.stdout, output), _instead_of(sys.stderr, output)
        yield
    finally:
        output.finish()
        sys.stdout, sys.stderr = before


def _standing_for(stream: TextIO | None, descriptor: int) -> TextIO:
    """Python sets a stream to None if its descriptor was closed at the start, which a server's loggers cannot
    handle."""
    return stream if stream is not None else open(descriptor, "w", encoding="utf-8", closefd=False)


def _instead_of(stream: TextIO, output: Output) -> TextIO:
    """The stream itself if it has no system descriptor."""
    try:
        stream.flush()
        raw = _Unawaited(output, stream.fileno())
    except (OSError, ValueError, AttributeError):
        return stream
    return io.TextIOWrapper(raw, stream.encoding, stream.errors, write_through=True)  # pyright: ignore[reportArgumentType]


def open_standard_files() -> None:
    """Open the null device in place of closed standard descriptors: a socket with descriptor 0 would end the event
    loop."""
    for descriptor in STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            _open_nothing(as_descriptor=descriptor)


def _open_nothing(*, as_descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != as_descriptor:
        os.dup2(nothing, as_descriptor)
        os.close(nothing)


def _write(descriptor: int, said: bytes) -> bool:
    """Whether there is a reader; what a full disk does not accept is lost."""
    while said:
        try:
            said = said[os.write(descriptor, said) :]
        except BlockingIOError:  # another process that shares the terminal made it non-blocking
            select.select((), (descriptor,), ())
        except OSError as error:
            return error.errno not in NOBODY_THERE
    return True
