"""A transport that sends what is written within one turn of the event loop as one piece. Knows no HTTP.

A system call is dearer than anything else that a small answer needs: its head and its body, or the events of a stream
that came together, leave together. Nothing waits longer than until the loop has run what is ready already.
"""

import asyncio
from typing import Any, Final

MOST_BYTES: Final = 64 * 1024
"""More than that goes out at once: only what the real transport holds can slow the writer down."""


class CorkedTransport(asyncio.Transport):
    """Around a real one. Has what HTTP servers ask of a transport, and no more.

    Closed, it waits `last_seconds` for what is still to be taken: a real one waits for ever for who takes nothing.
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
        """Hand over what is held back."""
        if pieces := self._pieces:
            self._pieces, self._bytes = [], 0
            if not self._inner.is_closing():  # else whoever it was for is gone
                self._inner.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def close(self) -> None:
        self.flush()
        if not self._inner.is_closing():
            self._inner.close()
            if self._inner.get_write_buffer_size():
                self._loop.call_later(self._last_seconds, self._inner.abort)

    def abort(self) -> None:
        self._pieces.clear()
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
