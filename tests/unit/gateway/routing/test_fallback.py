from collections.abc import Sequence
from contextlib import suppress

from backends.errors import (
    BackendError,
    ConnectFailed,
    RateLimited,
    StreamBroken,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamUnavailable,
)
from gateway.routing.circuit_breaker import CircuitBreaker, RetryBudget
from gateway.routing.fallback import RetryPolicy, Try, fallback_policy
from gateway.routing.snapshot import Candidate
from tests.builders import make_candidate

A, B = make_candidate("a"), make_candidate("b")


def drive(
    order: Sequence[Candidate], errors: Sequence[BackendError], *, down: set[str] | None = None, budget: int = 99
) -> list[Try]:
    """Every try the policy makes when the attempts fail with `errors` in turn."""
    left = [budget]

    def may_retry() -> bool:
        left[0] -= 1
        return left[0] >= 0

    steps = fallback_policy(
        order,
        RetryPolicy(),
        allows=lambda candidate: candidate.name not in (down or set()),
        may_retry=may_retry,
        jitter=lambda: 0.5,
    )
    tries: list[Try] = []
    with suppress(StopIteration):
        tries.append(next(steps))
        while len(tries) <= len(errors):
            tries.append(steps.send(errors[len(tries) - 1]))
    return tries


def names(tries: list[Try]) -> list[str]:
    return [one.candidate.name for one in tries]


def test_another_model_before_the_same_one_again() -> None:
    tries = drive([A, B], [ConnectFailed("x")] * 9)
    assert names(tries) == ["a", "b", "a", "b"]
    assert [one.wait_seconds for one in tries] == [0.0, 0.0, 0.2, 0.2]


def test_an_error_that_no_retry_cures_ends_it() -> None:
    assert names(drive([A, B], [UpstreamRejected("bad")])) == ["a"]
    assert names(drive([A, B], [StreamBroken("cut")])) == ["a"]
    assert names(drive([A, B], [UpstreamAuth("key")])) == ["a", "b"]


def test_retry_after_is_obeyed_or_given_up_on() -> None:
    assert [t.wait_seconds for t in drive([A], [RateLimited("x", retry_after_seconds=3.0)])] == [0.0, 3.0]
    assert names(drive([A], [RateLimited("x", retry_after_seconds=60.0)])) == ["a"]
    assert names(drive([A], [UpstreamUnavailable("x", retry_after_seconds=60.0)])) == ["a"]


def test_breaker_and_budget_hold_back() -> None:
    assert names(drive([A, B], [ConnectFailed("x")] * 5, down={"a"})) == ["b", "b"]
    assert names(drive([A, B], [ConnectFailed("x")] * 5, down={"a", "b"})) == []
    assert names(drive([A, B], [ConnectFailed("x")] * 5, budget=1)) == ["a", "b"]


def test_total_attempts_stay_within_the_budget_in_a_full_outage() -> None:
    budget = RetryBudget()
    attempts = 0
    for _ in range(1000):
        budget.earn()
        attempts += 1
        while budget.spend():
            attempts += 1
    assert attempts <= 1.2 * 1000 + budget.burst


def test_the_breaker_opens_probes_and_closes() -> None:
    breaker = CircuitBreaker()
    for _ in range(4):
        breaker.record_failure(0.0)
        assert breaker.allows(0.0)
    breaker.record_failure(0.0)
    assert not breaker.allows(1.9)
    assert breaker.is_open(1.9)
    assert breaker.allows(2.0)
    assert not breaker.allows(2.1), "one probe at a time"
    breaker.record_failure(2.1)
    assert not breaker.allows(6.0), "the cool-down doubled"
    assert breaker.allows(6.2)
    breaker.record_success()
    assert breaker.state == "closed"
    assert breaker.allows(6.3)


def test_a_lost_probe_does_not_keep_the_breaker_open_for_ever() -> None:
    breaker = CircuitBreaker(failure_limit=1)
    breaker.record_failure(0.0)
    assert breaker.allows(2.0)
    assert not breaker.allows(3.0)
    assert breaker.allows(62.0)
