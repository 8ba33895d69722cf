"""The child process of gateway.ledger.remote_sink: reads batches from stdin, inserts them, answers on stdout."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import BinaryIO, Protocol

import msgspec

from gateway.ledger.entry import Entry
from gateway.ledger.remote_sink import LENGTH
from gateway.storage.row_writer import RowWriter, once_each
from gateway.storage.rows.entry_rows import entry_rows
from gateway.storage.sqlite import is_sqlite, open_blocking_sqlite, writing_here
from native import cycles, huge_pages

NICER = 5  # the token path comes first


def read_frame(stream: BinaryIO) -> bytes | None:
    """None at end of file: the parent is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    [length] = LENGTH.unpack(head)
    content = stream.read(length)
    return content if len(content) == length else None


def answer(stream: BinaryIO, reply: object) -> None:
    content = msgspec.msgpack.encode(reply)
    stream.write(LENGTH.pack(len(content)) + content)
    stream.flush()


class Sink(Protocol):
    """An EntrySink that can be closed."""

    async def insert(self, batch: Sequence[Entry]) -> int: ...

    async def aclose(self) -> None: ...


class BlockingSqlite:
    """Writes rows on this thread, since nothing else runs on it."""

    def __init__(self, url: str) -> None:
        self._engine = open_blocking_sqlite(url)
        self._writer = RowWriter()

    async def insert(self, batch: Sequence[Entry]) -> int:
        """See gateway.ledger.shipper.EntrySink."""
        if not batch:
            return 0
        rows = [entry_rows(entry) for entry in once_each(batch)]
        with writing_here(self._engine) as connection:
            written = self._writer.write(connection, rows)
        return self._writer.committed(written)

    async def aclose(self) -> None:
        self._engine.dispose()


def sink_of(url: str) -> Sink:
    """Imports what PostgreSQL needs only for it: SQLAlchemy's asyncio and its ORM."""
    if is_sqlite(url):
        return BlockingSqlite(url)
    from gateway.storage.database import open_database
    from gateway.storage.sql.ledger import SqlLedger

    return SqlLedger(open_database(url))


async def serve(source: BinaryIO, target: BinaryIO) -> None:
    """One batch after another. Nothing else runs on this loop, so reading may block it.

    Raises BrokenPipeError when the parent is gone.
    """
    first = read_frame(source)
    if first is None:
        return
    sink = sink_of(msgspec.msgpack.decode(first, type=str))
    entry, batch = msgspec.msgpack.Decoder(Entry), msgspec.msgpack.Decoder(list[bytes])
    answer(target, 0)
    while (frame := read_frame(source)) is not None:
        try:
            answer(target, await sink.insert([entry.decode(payload) for payload in batch.decode(frame)]))
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost edge: whatever the database raises goes to whoever asked
            answer(target, f"{type(error).__name__}: {str(error)[:500]}")
    await sink.aclose()


if __name__ == "__main__":
    os.nice(NICER)
    cycles.search_seldom()
    huge_pages.gather()
    try:
        asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))
    except BrokenPipeError:
        os._exit(0)  # the gateway was killed: nobody is left to tell, and leaving by the door would try to
