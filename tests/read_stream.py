"""Reads answers to their end: a backend's, or an event stream in pieces, with a format's reader."""

from collections.abc import Sequence
from contextlib import aclosing

from backends.errors import BackendError
from backends.http.reply import StreamReader
from backends.http.sse import SseParser
from backends.protocol import Backend, Call, Chunk


async def collect(backend: Backend, call: Call) -> list[Chunk]:
    """Every chunk of a call's answer."""
    async with aclosing(await backend.open(call)) as reply:
        return [chunk async for chunk in reply]


def read_stream(reader: StreamReader, pieces: Sequence[bytes]) -> tuple[list[Chunk], str]:
    """Every chunk, and how the stream ended: `done`, or the error's class name."""
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
