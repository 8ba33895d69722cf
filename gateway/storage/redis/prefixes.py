"""Exchanges notes of warm prefixes between workers over Redis streams; see gateway.upstreams.shared_prefixes.

There is one stream for all workers, and one per replica for its own engine. A batch of notes is one record. The oldest
records are dropped when there are too many, and a whole stream if nothing was written for an hour. A new listener first
reads the last hour.
"""

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.storage.redis.client import ANSWER_SECONDS, answering
from gateway.upstreams.shared_prefixes import Heard, WarmNote

log = logging.getLogger(__name__)
PREFIX = "{breakeven}:prefixes:1"
"""The number is the format's version: during an upgrade, workers with different formats ignore each other."""
KEEP_SECONDS = 3600
MOST_RECORDS = 5000
NOTES_A_RECORD = 64
"""At about 80 bytes per note, a stream takes at most about 25 MB; with little traffic it has the last 5,000 batches."""
RECORDS_AT_ONCE = 16
HEAR_MS = 1000
AGAIN_SECONDS = 0.5

Record = tuple[bytes, Mapping[bytes, bytes]]
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(list[WarmNote]).decode


class RedisPrefixes:
    """Implements PrefixChannel for one worker of a `replica`. The client's values are bytes, and it is closed here."""

    def __init__(
        self,
        client: Redis,
        *,
        replica: str,
        most_records: int = MOST_RECORDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._client = client
        self._everybodys = PREFIX.encode()
        self._replicas = f"{PREFIX}:{replica}".encode()
        self._most_records = most_records
        self._answer_seconds = answer_seconds
        self._self = os.urandom(8)
        self._last: dict[bytes, bytes] = {}
        self._is_deaf = False

    async def tell(self, notes: Sequence[WarmNote], *, only_replica: bool) -> None:
        stream = self._replicas if only_replica else self._everybodys
        async with answering(self._answer_seconds), self._client.pipeline(transaction=False) as pipeline:
            for first in range(0, len(notes), NOTES_A_RECORD):
                record = {b"from": self._self, b"notes": encode(notes[first : first + NOTES_A_RECORD])}
                pipeline.xadd(stream, record, maxlen=self._most_records, approximate=True)  # pyright: ignore[reportArgumentType]
            pipeline.expire(stream, KEEP_SECONDS)
            await pipeline.execute()

    async def listen(self, heard: Heard) -> None:
        while True:
            try:
                await self._listen_once(heard)
            except (RedisError, OSError) as error:
                if not self._is_deaf:
                    log.warning("other workers' warm prefixes are not received: Redis failed (%s)", error)
                self._is_deaf = True
            await asyncio.sleep(AGAIN_SECONDS)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _listen_once(self, heard: Heard) -> None:
        seconds, micros = await self._client.time()
        ahead = seconds + micros / 1e6 - time.monotonic()  # Redis' clock, which dates the records, ahead of ours
        self._begin(seconds * 1000)
        while True:
            found = cast(
                "Sequence[tuple[bytes, Sequence[Record]]]",
                await self._client.xread(dict(self._last), count=RECORDS_AT_ONCE, block=HEAR_MS),  # pyright: ignore[reportArgumentType]
            )
            if self._is_deaf:
                log.warning("other workers' warm prefixes are received again")
                self._is_deaf = False
            for stream, records in found or ():
                for name, fields in records:
                    self._last[stream] = name
                    if fields[b"from"] != self._self:
                        told_at = int(name.partition(b"-")[0]) / 1000
                        heard(_read(fields), max(0.0, time.monotonic() + ahead - told_at))

    def _begin(self, now_ms: int) -> None:
        """Start where we stopped; an hour ago at first, or if a new server's clock is behind the last record read."""
        for stream in (self._everybodys, self._replicas):
            last = self._last.get(stream)
            if last is None or int(last.partition(b"-")[0]) > now_ms + HEAR_MS:
                self._last[stream] = b"%d-0" % max(0, now_ms - KEEP_SECONDS * 1000)


def _read(fields: Mapping[bytes, bytes]) -> Sequence[WarmNote]:
    try:
        return decode(fields[b"notes"])
    except (KeyError, msgspec.DecodeError) as error:
        log.warning("a record of warm prefixes in Redis cannot be read and is skipped: %s", error)
        return ()
