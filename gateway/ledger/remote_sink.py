"""An EntrySink in a child process: writing rows takes CPU time that the token path must not wait for.

Frames in both directions are a length and a msgpack value. The database URL is sent first, through the pipe, because a
command line is readable by every user of the machine. The child ends when its input does, so it never outlives us.
"""

import asyncio
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.ledger.batch import Batch

LENGTH = struct.Struct("<I")
CHILD = "gateway.storage.sink_process"
INSERT_SECONDS = 180.0
"""Longer than the child waits for a statement: it tells the server to give that up. Of a child that is killed, the
server goes on waiting for locks, and each next try would take one more of its connections."""


class SinkFailed(ConnectionError):
    """The child died or its database refused; the shipper retries."""


class RemoteSink:
    """Starts the child at the first batch, and again if it died. One batch at a time.

    `environment` is the child's; None: it inherits ours.
    """

    def __init__(self, database_url: str, *, environment: Mapping[str, str] | None = None) -> None:
        self._database_url = database_url
        self._environment = environment
        self._child: asyncio.subprocess.Process | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._turn = asyncio.Lock()

    @property
    def process_id(self) -> int | None:
        """None before the first batch."""
        return self._child.pid if self._child else None

    async def insert(self, batch: Batch) -> int:
        """Concurrent calls are served one after another.

        Raises SinkFailed; whether the entries were committed is then unknown, so the same entries may be sent again.
        """
        async with self._turn:
            reply = await self._insert(batch.payloads)
        if isinstance(reply, str):
            raise SinkFailed(reply)
        return int(reply)

    async def _insert(self, payloads: Sequence[bytes]) -> Any:
        try:
            async with asyncio.timeout(INSERT_SECONDS):
                child = await self._started()
                return await self._ask(child, payloads)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError) as error:
            await self.aclose()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise SinkFailed(f"the ledger's writer process failed: {type(error).__name__} {error}") from error

    async def aclose(self) -> None:
        """Kill the child; what it had not committed is shipped again later."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None:
            return
        child.kill()
        await child.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._child is None or self._child.returncode is not None:
            pipe = asyncio.subprocess.PIPE
            self._child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", CHILD, stdin=pipe, stdout=pipe, env=self._environment, start_new_session=True
            )
            await self._ask(self._child, self._database_url)
        return self._child

    async def _ask(self, child: asyncio.subprocess.Process, question: object) -> Any:
        assert child.stdin is not None
        assert child.stdout is not None
        content = self._encoder.encode(question)
        child.stdin.write(LENGTH.pack(len(content)) + content)
        await child.stdin.drain()
        [length] = LENGTH.unpack(await child.stdout.readexactly(LENGTH.size))
        return msgspec.msgpack.decode(await child.stdout.readexactly(length))
