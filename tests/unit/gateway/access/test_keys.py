import pytest

from gateway.access.keys import KeyRecord, KeyRing, hash_key
from gateway.errors import Unauthenticated

PEPPER = b"p" * 32
NOW_US = 1_795_000_000_000_000


def ring(record: KeyRecord) -> KeyRing:
    keys = KeyRing(PEPPER)
    keys.replace({hash_key(PEPPER, "bk-one"): record})
    return keys


@pytest.mark.parametrize("ahead_us", [-1, 0, 3_600_000_000])
def test_a_revoked_key_is_refused_though_the_clock_here_is_behind_the_one_that_revoked_it(ahead_us: int) -> None:
    keys = ring(KeyRecord("k", "app", "app", revoked_at_us=NOW_US + ahead_us))
    with pytest.raises(Unauthenticated, match="was revoked"):
        keys.authenticate("Bearer bk-one", NOW_US)


def test_a_key_is_good_until_it_expires() -> None:
    record = KeyRecord("k", "app", "app", expires_at_us=NOW_US)
    assert ring(record).authenticate("bk-one", NOW_US - 1) is record
    with pytest.raises(Unauthenticated, match="has expired"):
        ring(record).authenticate("bk-one", NOW_US)
