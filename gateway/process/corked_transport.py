"""A transport that sends everything written in one turn of the event loop as one piece. Knows no HTTP.

The system call is the most expensive part of a small response, so head and body, or stream events that arrived
together, are sent together. Nothing is delayed beyond the callbacks that are already due.
"""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024
"""Larger amounts are sent at once: only the real transport's buffer applies back-pressure to the writer."""

NOTHING_LINGERS: Final = struct.pack("ii", 1, 0)


class CorkedTransport(asyncio.Transport):
    """Wraps a real transport; offers only what HTTP servers use.

    After `close` it waits `last_seconds` for unsent data, where a real one waits forever for a client that reads
    nothing.
    """

    __slots__ = ("_bytes", "_inner", "_last_seconds", "_loop", "_pieces")

    def __init__(self, inner: asyncio.Transport, *, last_seconds: float) -> None:
        super().__init__()
        self._inner = inner
        self._last_seconds = last_seconds
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._bytes = 0

    def write(self, data: Any) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        if pieces := self._pieces:
            self._pieces, self._bytes = [], 0
            if not self._inner.is_closing():  # otherwise the client is gone
                self._inner.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        self.flush()
        if not self._inner.is_closing():
            self._inner.close()
            if self._inner.get_write_buffer_size():
                self._loop.call_later(self._last_seconds, self.abort)

    def abort(self) -> None:
        """Drops also what the system has not sent: it would hold megabytes for as long as a client reads slowly."""
        self._pieces.clear()
        with suppress(OSError):  # closed already
            if (ours := self._inner.get_extra_info("socket")) is not None:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOTHING_LINGERS)
        self._inner.abort()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._inner.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._inner.get_protocol()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)
