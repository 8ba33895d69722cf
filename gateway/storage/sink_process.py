"""The child of gateway.ledger.remote_sink: reads batches from its input, inserts them, answers on its output."""

import asyncio
import os
import sys
from typing import BinaryIO

import msgspec

from gateway.ledger.entry import Entry
from gateway.ledger.remote_sink import LENGTH
from gateway.storage.database import open_database
from gateway.storage.sql_ledger import SqlLedger

NICER = 5  # the token path comes first


def read_frame(stream: BinaryIO) -> bytes | None:
    """None at the end: whoever asked is gone."""
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


async def serve(source: BinaryIO, target: BinaryIO) -> None:
    """One batch after the other. There is nothing else on this loop, so reading may block it.

    Raises BrokenPipeError when whoever asked is gone.
    """
    first = read_frame(source)
    if first is None:
        return
    engine = open_database(msgspec.msgpack.decode(first, type=str))
    ledger, entry = SqlLedger(engine), msgspec.msgpack.Decoder(Entry)
    batch = msgspec.msgpack.Decoder(list[bytes])
    answer(target, 0)
    while (frame := read_frame(source)) is not None:
        try:
            answer(target, await ledger.insert([entry.decode(payload) for payload in batch.decode(frame)]))
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001 - the outermost edge: whatever the database raises goes to whoever asked
            answer(target, f"{type(error).__name__}: {str(error)[:500]}")
    await engine.dispose()


if __name__ == "__main__":
    os.nice(NICER)
    try:
        asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))
    except BrokenPipeError:
        os._exit(0)  # the gateway was killed: nobody is left to tell, and leaving by the door would try to
