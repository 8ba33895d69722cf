"""A PostgreSQL server that can fall silent: it accepts and keeps connections, but sends nothing."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

SOCKET = ".s.PGSQL.5432"
READY = b"Z\0\0\0\5I"
FIELDS = b"SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
GOES = b"E" + (4 + len(FIELDS)).to_bytes(4, "big") + FIELDS


class SilentPostgres:
    """In front of a real server, given by its socket directory."""

    def __init__(self, directory: str) -> None:
        self._behind = Path(directory, SOCKET)
        self._speaks = asyncio.Event()
        self._speaks.set()
        self.is_going = False
        """Whether it announces a shutdown to whoever comes."""
        self._writers: list[asyncio.StreamWriter] = []
        self._callers: list[asyncio.StreamWriter] = []

    def silence(self) -> None:
        self._speaks.clear()

    def speak(self) -> None:
        """Sends everything held back."""
        self._speaks.set()

    async def say_that_it_goes(self) -> None:
        """Announces a shutdown to all connected clients, without disconnecting them."""
        for writer in self._callers:
            writer.write(GOES)
            await writer.drain()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self._callers.append(writer)
        its_reader, its_writer = await asyncio.open_unix_connection(self._behind)
        self._writers.append(its_writer)
        await asyncio.gather(self._pass_on(reader, its_writer), self._pass_on(its_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65_536):
                await self._speaks.wait()
                writer.write(part + GOES if self.is_going and part.endswith(READY) else part)
        except ConnectionError:
            return
        finally:
            writer.close()

    def close(self) -> None:
        self.speak()
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def silent_postgres(directory: str) -> AsyncGenerator[tuple[SilentPostgres, str]]:
    """(the server, its URL)."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as own:
        proxy = SilentPostgres(directory)
        async with await asyncio.start_unix_server(proxy.take, Path(own, SOCKET)):
            try:
                yield proxy, f"postgresql+asyncpg://postgres@/postgres?host={own}"
            finally:
                proxy.close()
