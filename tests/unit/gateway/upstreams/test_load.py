"""What the process knows about its upstreams: keys, breakers per key, and which are down."""

from collections.abc import Sequence

import pytest

from backends.errors import (
    BackendError,
    ConnectFailed,
    NoFilesLeft,
    RateLimited,
    StreamBroken,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
)
from backends.protocol import BackendHealth
from gateway.upstreams.load import DOWN, PAUSE_AFTER_AUTH_SECONDS, PAUSED, REFUSED, Upstreams
from tests.builders import make_candidate

A = make_candidate("a", backend="one")


class Shelf:
    def __init__(self, *labels: str, wait: float = 0.0) -> None:
        self._labels = labels
        self._wait = wait

    def labels(self) -> Sequence[str]:
        return self._labels

    def labels_by_room(self) -> Sequence[str]:
        return self._labels

    def wait_seconds(self) -> float:
        return self._wait


def failed(upstreams: Upstreams, error: BackendError, *, key: str = "", times: int = 1) -> None:
    for _ in range(times):
        upstreams.started(A, key, 0.0)
        upstreams.ended(A)
        upstreams.failed(A, key, error, 0.0)


@pytest.mark.parametrize(
    ("error", "times", "rests"),
    [
        (ConnectFailed("x"), 4, 0.0),
        (ConnectFailed("x"), 5, 2.0),
        (StreamBroken("x"), 5, 2.0),
        (UpstreamRejected("x"), 9, 0.0),
        (Untranslatable("x"), 9, 0.0),
        (NoFilesLeft("x"), 9, 0.0),
        (RateLimited("x"), 1, 0.0),
        (RateLimited("x", retry_after_seconds=7.0), 1, 7.0),
        (RateLimited("x", retry_after_seconds=7.0, status=None), 1, 0.0),
        (UpstreamAuth("x"), 1, PAUSE_AFTER_AUTH_SECONDS),
    ],
)
def test_how_long_an_upstream_rests_after_what(error: BackendError, times: int, rests: float) -> None:
    upstreams = Upstreams()
    failed(upstreams, error, times=times)
    assert upstreams.wait_seconds([A], 0.0) == rests
    assert (upstreams.pick_key(A, 0.0, ()) is None) is (rests > 0)
    assert upstreams.pick_key(A, rests, ()) == ""
    down = REFUSED if isinstance(error, UpstreamAuth) else PAUSED if isinstance(error, RateLimited) else DOWN
    assert upstreams.state([A], 0.0) == ({"a": down} if rests else {})


def test_a_key_rests_alone_and_the_model_is_down_when_all_do() -> None:
    upstreams = Upstreams(shelves={"one": Shelf("k1", "k2")})
    failed(upstreams, UpstreamAuth("x"), key="k1")
    assert upstreams.pick_key(A, 0.0, ()) == "k2"
    assert upstreams.pick_key(A, 0.0, {"k2"}) is None
    assert upstreams.state([A], 0.0) == {}
    failed(upstreams, RateLimited("x", retry_after_seconds=3.0), key="k2")
    assert upstreams.state([A], 0.0) == {"a": PAUSED}
    assert upstreams.wait_seconds([A], 0.0) == 3.0


def test_a_pause_that_was_asked_for_and_ended_in_a_failure_is_told_as_down() -> None:
    upstreams = Upstreams()
    failed(upstreams, RateLimited("x", retry_after_seconds=3.0))
    upstreams.started(A, "", 3.0)
    assert upstreams.state([A], 3.0) == {"a": PAUSED}, "while one call tries it"
    upstreams.failed(A, "", ConnectFailed("x"), 4.0)
    assert upstreams.state([A], 4.0) == {"a": DOWN}


def test_keys_that_are_refused_are_told_until_the_provider_takes_them() -> None:
    upstreams = Upstreams(shelves={"one": Shelf("k1", "k2")})
    for key in ("k1", "k2"):
        failed(upstreams, UpstreamAuth("x", status=401), key=key)
    assert upstreams.state([A], 0.0) == {"a": REFUSED}
    refused = f"one refuses our key for {A.upstream_model} (it answered 401); see its console; the next call tries it"
    assert upstreams.warnings(1.0) == [f"{refused} in 299 s"] * 2
    failed(upstreams, RateLimited("x"), key="k1")
    upstreams.answered(A, "k2", PAUSE_AFTER_AUTH_SECONDS)
    assert upstreams.warnings(0.0) == [], "who asks for patience knows the key"


def test_one_that_fails_is_told_until_it_answers() -> None:
    upstreams = Upstreams(shelves={"one": Shelf("k1", "k2")})
    failed(upstreams, ConnectFailed("x"), key="k1", times=5)
    assert upstreams.failing([A], 0.0) == [], "its other key may be heard"
    failed(upstreams, ConnectFailed("x"), key="k2", times=6)
    fails = f"one fails for {A.upstream_model}, 5 times in a row; its status page or `breakeven doctor --ask` says more"
    assert upstreams.failing([A, A], 0.5) == [f"{fails}; the next call tries it in 2 s"]
    assert upstreams.failing([A], 60.0) == [f"{fails}; the next call tries it"]
    assert upstreams.failing([], 0.5) == [], "nobody asks it any more"
    failed(upstreams, UpstreamAuth("x", status=401), key="k2")
    assert len(upstreams.failing([A], 0.5)) == 1, "of the keys that it takes"
    upstreams.answered(A, "k1", 60.0)
    assert upstreams.failing([A], 60.0) == []
    failed(upstreams, RateLimited("x", retry_after_seconds=3.0), key="k1")
    assert upstreams.failing([A], 0.0) == [], "it asked for patience"


def test_a_backend_whose_keys_are_all_full_is_not_down_but_behind_the_others() -> None:
    upstreams = Upstreams(shelves={"one": Shelf("k1", wait=12.3456)})
    assert upstreams.state([A], 0.0) == {"a": (0, 12.346)}


def test_slots_are_what_the_engine_said_and_what_was_sent_and_came_back_since() -> None:
    upstreams = Upstreams()
    upstreams.started(A, "", 0.0)
    upstreams.note_health("one", BackendHealth(True, free_slots=2, running_requests=2))  # one of them is ours
    assert upstreams.state([A], 0.0) == {"a": (2, 0.0)}
    upstreams.started(A, "", 0.0)
    assert upstreams.state([A], 0.0) == {"a": (1, 0.0)}, "sent since the report"
    upstreams.ended(A)
    upstreams.ended(A)
    assert upstreams.state([A], 0.0) == {"a": (3, 0.0)}, "came back since the report; the other's call runs on"
    upstreams.note_health("one", BackendHealth(False))
    assert upstreams.state([A], 0.0) == {"a": DOWN}


def test_a_call_that_the_engine_has_not_counted_yet_takes_a_slot_all_the_same() -> None:
    upstreams = Upstreams()
    for _ in range(3):
        upstreams.started(A, "", 0.0)
    upstreams.note_health("one", BackendHealth(True, free_slots=4, running_requests=0))
    assert upstreams.state([A], 0.0) == {"a": (1, 0.0)}


def test_of_many_models_a_request_looks_only_at_those_of_backends_in_trouble() -> None:
    """And at none once the one that failed has answered: hundreds would be looked at for every request."""
    others = [make_candidate(f"other-{number}", backend="two", upstream_model=f"m{number}") for number in range(3)]
    upstreams = Upstreams()
    for one in (A, *others):
        upstreams.started(one, "", 0.0)
        upstreams.answered(one, "", 0.0)
    assert upstreams.failed_lately == set()
    failed(upstreams, ConnectFailed("x"), times=5)
    upstreams.failed(others[0], "", ConnectFailed("x"), 0.0)
    assert upstreams.state([A, *others], 1.0) == {"a": DOWN}
    assert upstreams.failed_lately == {(A.backend, A.upstream_model)}
    upstreams.answered(A, "", 9.0)
    assert (upstreams.state([A, *others], 9.0), upstreams.failed_lately) == ({}, set())
