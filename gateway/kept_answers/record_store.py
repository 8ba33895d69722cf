"""Protocol of a store whose records change together, atomically."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

OWNER_LETTERS: Final = 16
"""Tenants whose pseudonyms collide would share a size limit, and nothing else."""


def pseudonym(tenant: str) -> str:
    """The tenant as an owner of records: names in a store are visible to whoever operates it."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:OWNER_LETTERS]


@dataclass(frozen=True, slots=True)
class Change:
    """Compare and swap: if the record `name` equals `was` (None: does not exist), it becomes `value` (None: deleted).
    Atomically with it the records in `beside` are put, those in `gone` deleted, and the expiry of those in `renewed`
    is renewed. If it `erases`, deleted content can be recovered nowhere afterwards. `owner` is a pseudonym: a full
    store may evict records of an owner who has many."""

    name: str
    was: bytes | None
    value: bytes | None
    beside: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    gone: Collection[str] = ()
    renewed: Collection[str] = ()
    erases: bool = False
    owner: str = ""


class RecordStore(Protocol):
    """Bytes by name, for a time. May raise StoreDown, and soon."""

    async def get(self, name: str, seconds: float | None) -> bytes | None:
        """The value of that name; None if there is none or it expired. If `seconds` is given, its expiry is renewed to
        that long from now."""
        ...

    async def swap(self, change: Change, seconds: float) -> bool:
        """False, changing nothing, if the record was not as expected."""
        ...
