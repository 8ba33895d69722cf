"""A key's secret replaced by another while the older one goes on working for a while. Knows protocols only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.access.keys import KeyRing, ReplacedSecret

DEFAULT_OVERLAP_SECONDS = 86_400
"""A working day for every place that holds the secret."""
MOST_OVERLAP_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class OldSecret:
    """One that was replaced and still works. It was last used within seconds of the time that is said; None: not since
    it was replaced."""

    replaced_at_us: int
    ends_at_us: int
    last_used_at_us: int | None


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a key's secret was last replaced, and which older ones still work, the newest first."""

    rotated_at_us: int
    working: tuple[OldSecret, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSecret:
    """The only time that it is seen. Older ones end at `ends_at_us`, or did before."""

    secret: str = field(repr=False)
    ends_at_us: int


class SecretStore(Protocol):
    """Secrets of keys by one clock that all who share the store have. Every change is in the audit log."""

    async def rotate(self, key_id: str, *, overlap_seconds: int, author: str) -> NewSecret | None:
        """None when there is no such key. After the overlap no older secret works: one that was to end sooner still
        does. Raises Conflict for a key that was revoked or has expired, and where too many older secrets work."""
        ...

    async def end_overlap(self, key_id: str, *, author: str) -> bool:
        """Withdraw whatever older secret of it still works. False when there is no such key."""
        ...

    async def rotations(self) -> Mapping[str, Rotation]:
        """Key id -> how it was rotated, of those that were."""
        ...

    async def replaced(self) -> Mapping[bytes, ReplacedSecret]:
        """By their hashes, the withdrawn ones of which something can still be said included."""
        ...

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        """How long ago these hashes were last used."""
        ...

    async def withdraw(self, hashes: Collection[bytes]) -> None:
        """Their time is over: for good, whatever a clock says later."""
        ...


@dataclass(frozen=True, slots=True)
class Overlaps:
    """What a worker does for replaced secrets beside serving. `look` once in a while."""

    ring: KeyRing
    store: SecretStore

    async def look(self) -> None:
        """Notes that old secrets are in use, and that the time of some is over."""
        if used := self.ring.used():
            await self.store.note_uses(self.ring.seconds_ago(used))
            self.ring.forget_uses(used)
        if overdue := self.ring.overdue():
            await self.store.withdraw(overdue)
