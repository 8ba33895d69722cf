"""Server-sent events without IO: bytes in, events out, whatever the chunk boundaries. Knows nothing of JSON or models.

Events with empty data are dropped: they mean nothing in any wire format we read. `event:`, `id:` and `retry:` fields
are skipped, since all those formats repeat the event's name inside its data.
"""

from typing import Final

BOM: Final = b"\xef\xbb\xbf"
MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""As of a whole answer. Gemini's pictures in 4K come in one event, of 20 to over 40 MB."""
_LINE_FEED, _CARRIAGE_RETURN = b"\n\r"  # as numbers: `in` finds a number in bytes five times as fast as a substring
_LINE_OVERHEAD: Final = 64  # bytes charged per data line, so that empty lines are bounded too


class EventTooLarge(ValueError):
    """One event grew beyond the limit: the stream is not one we can hold in memory."""


class SseParser:
    """Takes bytes as they are received, and returns the data of each event that they complete.

    Memory is bounded by `max_event_bytes` plus the last chunk. After EventTooLarge the parser must not be used again.
    """

    __slots__ = ("_data", "_data_bytes", "_is_first", "_max_event_bytes", "_partial", "_skip_line_feed", "comments")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._partial = bytearray()  # an incomplete line; pieces of a picture's would leave holes in the heap
        self._data: list[bytes] = []  # data lines of an incomplete event
        self._data_bytes = 0  # in both
        self._is_first = True
        self._skip_line_feed = False
        self.comments = 0  # comment lines received: heartbeats

    def receive(self, chunk: bytes) -> list[bytes]:
        """Data of the events this chunk completes, in order. Raises EventTooLarge."""
        if self._is_first or self._skip_line_feed:
            chunk = self._start(chunk)
        if not self._partial and not self._data and _CARRIAGE_RETURN not in chunk:
            return self._receive_whole(chunk)
        return self._receive_lines(chunk)

    def finish(self) -> list[bytes]:
        """The last event, if the stream ended without the blank line after it."""
        events: list[bytes] = []
        self._end_line(self._take_partial(), events)
        self._end_line(b"", events)
        return events

    def _start(self, chunk: bytes) -> bytes:
        """Drops the LF of a CRLF that was split between chunks, and a byte order mark at the start of the stream."""
        if self._skip_line_feed and chunk:
            self._skip_line_feed = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        if self._is_first and chunk:
            chunk = self._take_partial() + chunk
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                self._hold(chunk)
                return b""
            self._is_first = False
            chunk = chunk.removeprefix(BOM)
        return chunk

    def _receive_whole(self, chunk: bytes) -> list[bytes]:
        """The common case: nothing pending, LF only, and whole `data: ...` blocks, which are parted together."""
        end = chunk.rfind(b"\n\n") + 2
        if end > 1 and chunk.startswith(b"data: ") and end <= self._max_event_bytes:
            events = chunk[6 : end - 2].split(b"\n\ndata: ")
            if _LINE_FEED not in b"".join(events) and b"" not in events:
                return events + self._receive_lines(chunk[end:]) if end < len(chunk) else events
        return self._receive_lines(chunk)

    def _receive_lines(self, chunk: bytes) -> list[bytes]:
        events: list[bytes] = []
        if _CARRIAGE_RETURN in chunk:
            self._skip_line_feed = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        for line in lines:
            if self._partial:
                self._hold(line)
                line = self._take_partial()
            self._end_line(line, events)
        self._hold(rest)
        return events

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                data = b"\n".join(self._data)
                self._data_bytes -= sum(map(len, self._data)) + _LINE_OVERHEAD * len(self._data)
                self._data.clear()
                if data:
                    events.append(data)
        elif line.startswith(b"data:"):
            self._add_data(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line == b"data":
            self._add_data(b"")
        elif line.startswith(b":"):
            self.comments += 1

    def _add_data(self, value: bytes) -> None:
        self._data.append(value)
        self._count(len(value) + _LINE_OVERHEAD)

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._partial += piece
            self._count(len(piece))

    def _take_partial(self) -> bytes:
        line = bytes(self._partial)
        self._partial.clear()
        self._data_bytes -= len(line)
        return line

    def _count(self, added: int) -> None:
        self._data_bytes += added
        if self._data_bytes > self._max_event_bytes:
            raise EventTooLarge(f"an event is larger than {self._max_event_bytes} bytes")
