"""A pooler like PgBouncer in transaction mode: server connections are assigned to clients per transaction."""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.silent_postgres import SOCKET

PROTOCOL = 196_608
READY, IDLE = b"Z", b"I"


class PooledPostgres:
    """In front of a real server, given by its socket directory, with one connection to it for all clients."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: bytes) -> None:
        self._reader, self._writer = reader, writer
        self._greeting = greeting
        self._turn = asyncio.Lock()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(_length(await reader.readexactly(4)))
        key = b"K" + (12).to_bytes(4, "big") + secrets.token_bytes(8)
        writer.write(self._greeting + key + READY + (5).to_bytes(4, "big") + IDLE)
        try:
            while (kind := await reader.read(1)) not in (b"", b"X"):
                async with self._turn:
                    await self._transaction(kind, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    async def _transaction(self, kind: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asking = asyncio.create_task(self._ask(kind, reader))
        try:
            while True:
                answer, content = await _message(self._reader, await self._reader.readexactly(1))
                writer.write(answer)
                if answer[:1] == READY and content == IDLE:
                    return
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _ask(self, kind: bytes, reader: asyncio.StreamReader) -> None:
        while True:
            self._writer.write((await _message(reader, kind))[0])
            kind = await reader.readexactly(1)


async def _message(reader: asyncio.StreamReader, kind: bytes) -> tuple[bytes, bytes]:
    """(the whole message, its payload)."""
    head = await reader.readexactly(4)
    content = await reader.readexactly(_length(head))
    return kind + head + content, content


def _length(head: bytes) -> int:
    return int.from_bytes(head, "big") - 4


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Logs in; returns the server's greeting without the key for cancelling this connection."""
    names = b"user\0postgres\0database\0postgres\0\0"
    writer.write((8 + len(names)).to_bytes(4, "big") + PROTOCOL.to_bytes(4, "big") + names)
    said = b""
    while (kind := await reader.readexactly(1)) != READY:
        whole, _ = await _message(reader, kind)
        said += b"" if kind == b"K" else whole
    await _message(reader, kind)
    return said


@asynccontextmanager
async def pooled_postgres(directory: str) -> AsyncGenerator[str]:
    """The URL of a running one."""
    async with AsyncExitStack() as stack:
        own = stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp"))
        reader, writer = await asyncio.open_unix_connection(Path(directory, SOCKET))
        stack.callback(writer.close)
        pooler = PooledPostgres(reader, writer, await _greeted(reader, writer))
        await stack.enter_async_context(await asyncio.start_unix_server(pooler.take, Path(own, SOCKET)))
        yield f"postgresql+asyncpg://postgres@/postgres?host={own}"
