"""What a format's reader makes of an event stream that comes in these pieces."""

from collections.abc import Sequence

from backends.errors import BackendError
from backends.http.reply import StreamReader
from backends.http.sse import SseParser
from backends.protocol import Chunk


def read_stream(reader: StreamReader, pieces: Sequence[bytes]) -> tuple[list[Chunk], str]:
    """Every chunk, and how it ended: `done`, or the error's name."""
    parser, found = SseParser(), list[Chunk]()
    try:
        for piece in pieces:
            for event in parser.receive(piece):
                found += reader.read(event)
                if reader.is_done:
                    return found, "done"
        for event in parser.finish():
            found += reader.read(event)
        if not reader.is_done:
            found += reader.end()
    except BackendError as error:
        return found, type(error).__name__
    return found, "done"
