"""A worker's periodic duties for replaced secrets."""

from collections.abc import Mapping

import pytest

from gateway.access.keys import KeyRing, hash_key
from gateway.access.rotation import Overlaps
from gateway.errors import DatabaseDown
from gateway.stores import NewKey
from tests.hand_clock import HandClock
from tests.unit.gateway.api.memory_stores import NOW_US, PEPPER, MemoryKeys, MemorySecrets


class FailingOnce(MemorySecrets):
    is_down = True

    async def note_uses(self, seconds_ago: Mapping[bytes, float]) -> None:
        if self.is_down:
            raise DatabaseDown("gone")
        await super().note_uses(seconds_ago)


async def test_uses_are_noted_once_the_store_is_there_and_ends_are_made_final() -> None:
    uptime, keys = HandClock(), MemoryKeys()
    await keys.create(NewKey("app"), author="ada")
    old = hash_key(PEPPER, keys.secrets["key-0"])
    store, ring = FailingOnce(keys), KeyRing(PEPPER, uptime)
    await store.rotate("key-0", overlap_seconds=60, author="ada")
    ring.replace(keys.ring(), await store.replaced())
    overlaps = Overlaps(ring, store)
    ring.authenticate("bk-key-0", NOW_US)
    with pytest.raises(DatabaseDown):
        await overlaps.look()
    uptime.now += 20
    store.is_down = False
    await overlaps.look()
    assert store.used == {old: 20.0}
    uptime.now += 40
    await overlaps.look()
    assert store.old[old].is_withdrawn
    assert store.used == {old: 20.0}, "nobody used it again"
