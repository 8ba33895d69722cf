"""Rotation of a key's secret, the old one staying valid for an overlap. Knows protocols only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gateway.access.keys import KeyRing, ReplacedSecret

DEFAULT_OVERLAP_SECONDS = 86_400
"""One day to update every place that holds the secret."""
MOST_OVERLAP_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class OldSecret:
    """A replaced secret that still works. `last_used_at_us` is accurate to seconds; null if unused since its
    replacement."""

    replaced_at_us: int
    ends_at_us: int
    last_used_at_us: int | None


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a key's secret was last replaced, and which older secrets still work, newest first."""

    rotated_at_us: int
    working: tuple[OldSecret, ...] = ()


@dataclass(frozen=True, slots=True)
class NewSecret:
    """The new secret, visible only here. Older ones end at `ends_at_us` at the latest."""

    secret: str = field(repr=False)
    ends_at_us: int


class SecretStore(Protocol):
    """Secrets of keys, timed by one clock shared by all users of the store. Every change is in the audit log."""

    async def rotate(self, key_id: str, *, overlap_seconds: int, author: str) -> NewSecret | None:
        """None when there is no such key. No older secret outlives the overlap; one due to end sooner still does.
        Raises Conflict for a revoked or expired key, and when too many older secrets still work."""
        ...

    async def end_overlap(self, key_id: str, *, author: str) -> bool:
        """Withdraws all older secrets of a key that still work. False when there is no such key."""
        ...

    async def rotations(self) -> Mapping[str, Rotation]:
        """Key id -> its rotation, for keys that were rotated."""
        ...

    async def replaced(self) -> Mapping[bytes, ReplacedSecret]:
        """Replaced secrets by hash, including withdrawn ones that errors can still describe."""
        ...

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        """Records how long ago these hashes were last used."""
        ...

    async def withdraw(self, hashes: Collection[bytes]) -> None:
        """Withdraws these secrets for good, whatever the clock says later."""
        ...


@dataclass(frozen=True, slots=True)
class Overlaps:
    """A worker's periodic duties for replaced secrets. Call `look` now and then."""

    ring: KeyRing
    store: SecretStore

    async def look(self) -> None:
        """Reports uses of old secrets and withdraws those whose time is over."""
        if used := self.ring.used():
            await self.store.note_uses(self.ring.seconds_ago(used))
            self.ring.forget_uses(used)
        if overdue := self.ring.overdue():
            await self.store.withdraw(overdue)
