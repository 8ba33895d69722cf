"""Warm prefixes known to a whole fleet: every worker keeps all of them in memory, and tells the others in batches.

No decision waits for this. What has not been heard yet, or cannot be because the channel is down, is unknown here, and
the conversation is treated as new. Names no channel.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from gateway.errors import StoreDown
from gateway.process.tasks import end_tasks
from gateway.upstreams.prompt_prefixes import Prefix
from gateway.upstreams.warm_prefixes import MemoryWarmPrefixes

log = logging.getLogger(__name__)
GATHER_SECONDS = 0.05
"""Notes made within this time are sent together; the next turn of a conversation seldom comes sooner."""
MOST_UNTOLD = 4096
AGAIN_SECONDS = 0.5


class WarmNote(msgspec.Struct, frozen=True, array_like=True):
    """A note to other workers: this many tokens are warm for this many seconds from sending."""

    tenant: str
    fingerprint: bytes
    model: str
    warm_tokens: int
    seconds: float


Heard = Callable[[Sequence[WarmNote], float], None]
"""Notes, and how many seconds ago they were sent."""


class PrefixChannel(Protocol):
    """Carries notes between workers; drops some rather than wait."""

    async def tell(self, notes: Sequence[WarmNote], *, only_replica: bool) -> None:
        """Sends to every other worker, or to those of this replica. Raises StoreDown, and then the notes are lost."""
        ...

    async def listen(self, heard: Heard) -> None:
        """Delivers recent and future notes of the others; until cancelled."""
        ...

    async def aclose(self) -> None: ...


@dataclass(slots=True)
class SharedWarmPrefixes:
    """Implements WarmPrefixes; run `run` beside the requests. Times are seconds of `monotonic`."""

    channel: PrefixChannel
    monotonic: Callable[[], float] = time.monotonic
    known: MemoryWarmPrefixes = field(default_factory=MemoryWarmPrefixes)
    _untold: OrderedDict[tuple[bool, str, bytes, str], tuple[int, float]] = field(
        default_factory=OrderedDict[tuple[bool, str, bytes, str], tuple[int, float]]
    )
    _has_untold: asyncio.Event = field(default_factory=asyncio.Event)
    _is_down: bool = False

    def lookup(self, tenant: str, prefixes: Sequence[Prefix], now: float) -> dict[str, int]:
        return self.known.lookup(tenant, prefixes, now)

    def note(
        self,
        tenant: str,
        prefix: Prefix,
        model: str,
        warm_tokens: int,
        until: float,
        *,
        is_replicas_own: bool = False,
    ) -> None:
        self.known.note(tenant, prefix, model, warm_tokens, until)
        self._untold[is_replicas_own, tenant, prefix[0], model] = (warm_tokens, until)  # a system prompt is sent once
        if len(self._untold) > MOST_UNTOLD:
            self._untold.popitem(last=False)
        self._has_untold.set()

    async def run(self) -> None:
        """Runs forever."""
        tasks = [asyncio.create_task(self.channel.listen(self._hear)), asyncio.create_task(self._tell_for_ever())]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end_tasks(tasks)

    async def tell(self) -> None:
        """Sends what was noted since the last time. Raises StoreDown."""
        untold, now = list(self._untold.items()), self.monotonic()
        self._untold.clear()
        self._has_untold.clear()
        for only_replica in (False, True):
            notes = [
                WarmNote(tenant, fingerprint, model, tokens, round(until - now, 3))
                for (is_own, tenant, fingerprint, model), (tokens, until) in untold
                if is_own == only_replica and until > now
            ]
            if notes:
                await self.channel.tell(notes, only_replica=only_replica)

    async def _tell_for_ever(self) -> None:
        while True:
            await self._has_untold.wait()
            await asyncio.sleep(GATHER_SECONDS)
            try:
                await self.tell()
            except StoreDown as error:
                if not self._is_down:
                    log.warning("other workers do not learn which prompts are warm here: %s", error)
                self._is_down = True
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                self._is_down = False

    def _hear(self, notes: Sequence[WarmNote], seconds_ago: float) -> None:
        now = self.monotonic()
        for note in notes:
            if (left := note.seconds - seconds_ago) > 0:
                self.known.note(note.tenant, (note.fingerprint, 0), note.model, note.warm_tokens, now + left)
