"""What is asked of a store of records that belong together: several change in one step, or none does."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


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
        """What is kept under that name, for so many seconds more where they are given; None where nothing is, or its
        time is over."""
        ...

    async def swap(self, change: Change, seconds: float) -> bool:
        """Whether the record was as expected; otherwise nothing has changed."""
        ...
