"""Entries on their way to the database are waited for; forbidden entries are indistinguishable from missing ones."""

import pytest

from gateway.api.late_entries import WAITS, YOUNG_US, get_soon
from gateway.errors import NotFound
from gateway.ledger.entry import Entry
from gateway.stores import EntryStore
from tests.unit.gateway.api.memory_stores import MemoryEntries
from tests.unit.gateway.ledger.builders import make_entry, make_intent
from tests.virtual_time import now, run

ACCEPTED_MS = 1_790_000_000_000
NAME = f"{ACCEPTED_MS:012x}7{'0' * 19}"
"""Of a request that was accepted then."""


class Late(MemoryEntries):
    """A store that has the entry from that second on."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.looks = 0
        self._seconds = seconds

    async def get(self, request_id: str) -> Entry | None:
        self.looks += 1
        if now() >= self._seconds and request_id == NAME:
            return make_entry(intent=make_intent(1, request_id=NAME))
        return None


def found(entries: EntryStore) -> tuple[Entry, float]:
    """The entry, and the seconds until it was found."""

    async def scene() -> tuple[Entry, float]:
        return await get_soon(entries, NAME, lambda entry: True, now=lambda: ACCEPTED_MS * 1000), now()

    return run(scene)


def refused_after(entries: EntryStore, name: str = NAME, *, age_us: int = 0) -> float:
    """Seconds until a forbidden entry is refused, for a request accepted this long ago."""

    async def scene() -> float:
        with pytest.raises(NotFound, match="two seconds after its last byte"):
            await get_soon(entries, name, lambda entry: False, now=lambda: ACCEPTED_MS * 1000 + age_us)
        return now()

    return run(scene)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
def test_it_is_waited_for(seconds: float) -> None:
    entry, waited = found(Late(seconds))
    assert entry.intent.request_id == NAME
    assert seconds <= waited <= 2 * seconds + WAITS[0]


def test_anothers_looks_and_takes_as_one_that_never_was() -> None:
    there, nowhere = Late(0.0), Late(float("inf"))
    assert refused_after(there) == refused_after(nowhere) == pytest.approx(sum(WAITS))
    assert there.looks == nowhere.looks == len(WAITS) + 1


@pytest.mark.parametrize(
    ("name", "age_us"),
    [(NAME, YOUNG_US), (NAME, -YOUNG_US), ("f" * 32, 0), ("", 0), (f"{NAME}0", 0), ("resp_1", 0), (NAME.upper(), 0)],
)
def test_what_cannot_be_on_its_way_is_not_waited_for(name: str, age_us: int) -> None:
    entries = Late(float("inf"))
    assert refused_after(entries, name, age_us=age_us) == 0.0
    assert entries.looks == 1
