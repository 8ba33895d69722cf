"""What is asked of a store of records that belong together: several change in one step, or none does."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Change:
    """Of the record `name`, if it is what it `was` (None: there is none): it becomes `value` (None: it goes). In the
    same step the records `beside` it are put, those in `gone` go, and those in `renewed` get the same time anew. If it
    `erases`, nothing of what goes can be found anywhere when it is done. `owner` is whose all of that is, in a name
    that tells nobody who: a store that is full may take the room from an owner who has much."""

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
