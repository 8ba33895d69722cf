import hashlib

import pytest

from gateway.access.keys import KeyRecord, KeyRing, ReplacedSecret, hash_key, hash_litellm_digest
from gateway.errors import Unauthenticated
from tests.hand_clock import HandClock

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


OLD, NEW = hash_key(PEPPER, "bk-old"), hash_key(PEPPER, "bk-new")
APP = KeyRecord("k", "app", "app", team="red")
ENDS_US = NOW_US + 60_000_000


def replaced(*, left: float = 60.0, ends_at_us: int = ENDS_US, is_withdrawn: bool = False) -> ReplacedSecret:
    return ReplacedSecret("k", NOW_US, ends_at_us, 0.0 if is_withdrawn else left, is_withdrawn)


def rotated(uptime: HandClock, old: ReplacedSecret, record: KeyRecord = APP) -> KeyRing:
    keys = KeyRing(PEPPER, uptime)
    keys.replace({NEW: record}, {OLD: old})
    return keys


def works(keys: KeyRing, secret: str = "bk-old", at_us: int = NOW_US) -> bool:
    try:
        keys.authenticate(f"Bearer {secret}", at_us)
    except Unauthenticated:
        return False
    return True


def test_both_secrets_are_the_same_key_until_the_overlap_is_over() -> None:
    uptime = HandClock()
    keys = rotated(uptime, replaced())
    uptime.now += 59.9
    assert keys.authenticate("bk-old", NOW_US) is keys.authenticate("bk-new", NOW_US) is APP
    uptime.now += 0.1
    with pytest.raises(Unauthenticated) as refused:
        keys.authenticate("bk-old", NOW_US)
    assert str(refused.value) == (
        "This secret of the API key 'app' was replaced on 2026-11-18 11:06 UTC and worked until 2026-11-18 11:07 UTC; "
        "use the new one."
    )
    assert works(keys, "bk-new")


@pytest.mark.parametrize("clock_us", [NOW_US - 10**13, NOW_US + 10**13])
@pytest.mark.parametrize("left", [1e7, -1e7])
def test_no_clock_that_is_set_moves_the_end_of_an_overlap(clock_us: int, left: float) -> None:
    uptime = HandClock()
    keys = rotated(uptime, replaced())
    uptime.now += 30
    keys.replace({NEW: APP}, {OLD: replaced(left=left)})  # read by a clock that was set in between
    assert works(keys, at_us=clock_us)
    uptime.now += 30
    assert not works(keys, at_us=clock_us)
    keys.replace({NEW: APP}, {OLD: replaced(left=left)})
    assert not works(keys, at_us=clock_us)


def test_an_end_that_is_moved_is_taken_over_and_a_withdrawn_secret_stays_withdrawn() -> None:
    uptime = HandClock()
    keys = rotated(uptime, replaced())
    keys.replace({NEW: APP}, {OLD: replaced(left=5, ends_at_us=NOW_US + 5_000_000)})
    uptime.now += 4
    assert works(keys)
    keys.replace({NEW: APP}, {OLD: replaced(is_withdrawn=True)})
    assert not works(keys)
    assert keys.overdue() == []


def test_what_ends_the_key_ends_every_secret_and_says_so() -> None:
    for record, said in (
        (KeyRecord("k", "app", "app", revoked_at_us=1), "was revoked"),
        (KeyRecord("k", "app", "app", expires_at_us=NOW_US), "has expired"),
    ):
        keys = rotated(HandClock(), replaced(), record)
        for secret in ("bk-old", "bk-new"):
            with pytest.raises(Unauthenticated, match=said):
                keys.authenticate(secret, NOW_US)


def test_the_use_of_an_old_secret_is_told_until_it_is_noted() -> None:
    uptime = HandClock()
    keys = rotated(uptime, replaced())
    assert works(keys, "bk-new")
    assert keys.used() == {}
    assert works(keys)
    uptime.now += 7
    noted = keys.used()
    assert keys.seconds_ago(noted) == {OLD: 7.0}
    assert works(keys)
    keys.forget_uses(noted)
    noted = keys.used()
    assert keys.seconds_ago(noted) == {OLD: 0.0}, "used while it was noted"
    keys.forget_uses(noted)
    assert keys.used() == {}
    uptime.now += 60
    assert not works(keys)
    assert keys.used() == {}, "it was refused"


def test_a_secret_whose_time_is_over_is_told_once_it_is() -> None:
    uptime = HandClock()
    keys = rotated(uptime, replaced())
    assert keys.overdue() == []
    uptime.now += 60
    assert keys.overdue() == [OLD]


def digest(secret: str) -> bytes:
    """The hash that LiteLLM stores of a key."""
    return hashlib.sha256(secret.encode()).digest()


THEIRS = hash_litellm_digest(PEPPER, digest("sk-theirs"))


def with_litellms(*, has_litellms: bool = True) -> KeyRing:
    keys = KeyRing(PEPPER)
    keys.replace({NEW: KeyRecord("n", "other", "app"), THEIRS: APP}, has_litellms=has_litellms)
    return keys


def test_a_key_of_litellms_works_by_the_secret_that_it_had_there() -> None:
    keys = with_litellms()
    assert keys.authenticate("Bearer sk-theirs", NOW_US) is APP
    assert keys.authenticate("BEARER  sk-theirs", NOW_US) is APP
    assert keys.is_known("sk-theirs")
    assert keys.authenticate("bk-new", NOW_US).id == "n"
    assert not works(keys, "sk-other")
    assert not works(with_litellms(has_litellms=False), "sk-theirs")


@pytest.mark.parametrize(
    "sent",
    [
        digest("sk-theirs").hex(),
        f"sk-{digest('sk-theirs').hex()}",
        digest("sk-theirs").decode("latin-1"),
        f"litellm-sha256:{digest('sk-theirs').hex()}",
        THEIRS.hex(),
    ],
)
def test_who_knows_what_a_database_keeps_of_a_key_is_nobody(sent: str) -> None:
    assert not works(with_litellms(), sent)


def test_another_pepper_knows_none_of_them() -> None:
    assert hash_litellm_digest(b"q" * 32, digest("sk-theirs")) != THEIRS
    assert hash_key(PEPPER, "sk-theirs") != THEIRS


def test_a_key_of_litellms_that_was_rotated_works_by_its_old_secret_until_the_end() -> None:
    uptime = HandClock()
    keys = KeyRing(PEPPER, uptime)
    keys.replace({NEW: APP}, {THEIRS: replaced()}, has_litellms=True)
    assert works(keys, "sk-theirs")
    assert set(keys.used()) == {THEIRS}
    uptime.now += 60
    with pytest.raises(Unauthenticated, match="was replaced"):
        keys.authenticate("sk-theirs", NOW_US)
