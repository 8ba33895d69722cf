from collections.abc import Collection, Generator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from backends.errors import (
    BackendError,
    ConnectFailed,
    RateLimited,
    StreamBroken,
    Untranslatable,
    UpstreamAuth,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.routing.circuit_breaker import CircuitBreaker, RetryBudget
from gateway.routing.fallback import LATE, RetryPolicy, Silence, Try, fallback_policy
from gateway.routing.first_token_times import FirstTokenTimes
from gateway.routing.snapshot import Candidate
from tests.builders import make_candidate

A, B = make_candidate("a"), make_candidate("b")


def drive(
    order: Sequence[Candidate], errors: Sequence[BackendError], *, down: set[str] | None = None, budget: int = 99
) -> list[Try]:
    """All attempts that the policy makes when they fail with `errors` in turn."""
    left = [budget]

    def may_retry() -> bool:
        left[0] -= 1
        return left[0] >= 0

    steps = fallback_policy(
        order,
        RetryPolicy(),
        pick_key=lambda candidate, wait, refused: None if candidate.name in (down or set()) or "" in refused else "",
        may_retry=may_retry,
        jitter=lambda: 0.5,
    )
    tries: list[Try] = []
    with suppress(StopIteration):
        found = next(steps)
        for error in errors:
            assert found is not None
            tries.append(found)
            found = steps.send(error)
        assert found is not None
        tries.append(found)
    return tries


def test_a_refused_key_gives_way_to_another_key_of_the_same_model() -> None:
    keys = ("k1", "k2")
    steps = fallback_policy(
        [A, B],
        RetryPolicy(max_attempts=5),
        pick_key=lambda candidate, wait, refused: next((key for key in keys if key not in refused), None),
        may_retry=lambda: True,
        jitter=lambda: 0.5,
    )
    errors = (RateLimited("x"), UpstreamAuth("y"), UpstreamUnavailable("z"), RateLimited("x"))
    seen = [next(steps), *map(steps.send, errors)]
    made = [(one.candidate.name, one.key, one.wait_seconds) for one in seen if one is not None]
    assert made == [("a", "k1", 0.0), ("a", "k2", 0.0), ("b", "k1", 0.0), ("a", "k1", 0.2), ("b", "k1", 0.2)]


def test_models_that_cannot_say_a_request_are_no_retries() -> None:
    """Of six models only the last could: only four used to be tried, and the caller was told that none can."""
    order = [make_candidate(name) for name in "abcdef"]
    unsaid = [Untranslatable("n")] * 5
    assert names(drive(order, unsaid, budget=0)) == [*"abcdef"]
    down = [UpstreamUnavailable("down")] * 3
    assert names(drive(order, [Untranslatable("n"), *down])) == [*"abcde"]
    assert names(drive(order, [Untranslatable("n"), *down, UpstreamUnavailable("down")])) == [*"abcde"]


def any_key(candidate: Candidate, wait: float, refused: Collection[str]) -> str:
    return ""


def hedge_soon(candidate: Candidate) -> float:
    return 0.5


def silent(**given: Any) -> Generator[Try | None, BackendError | Silence]:
    return fallback_policy([A, B], RetryPolicy(), pick_key=any_key, may_retry=lambda: True, jitter=lambda: 0.5, **given)


def test_a_silent_model_is_overtaken_by_the_next_and_the_last_one_is_waited_for() -> None:
    steps = silent(first_token_seconds=2.0)
    assert next(steps) == Try(1, A, 0.0, "", 2.0)
    assert steps.send(LATE) == Try(2, B, 0.0, "", 2.0, overtakes=True)
    assert steps.send(LATE) is None, "nobody is left: go on waiting"
    assert steps.send(UpstreamTimeout("b too")) == Try(3, A, 0.2, "", 2.0)


def test_a_hedge_runs_beside_the_first_and_both_give_way_at_the_deadline() -> None:
    steps = silent(first_token_seconds=2.0, hedge_seconds=hedge_soon)
    assert next(steps) == Try(1, A, 0.0, "", 0.5)
    assert steps.send(LATE) == Try(2, B, 0.0, "", 2.0, overtakes=False)
    assert steps.send(LATE) is None


def test_a_hedge_needs_no_deadline_and_one_after_the_deadline_never_starts() -> None:
    steps = silent(hedge_seconds=hedge_soon)
    assert next(steps) == Try(1, A, 0.0, "", 0.5)
    assert steps.send(LATE) == Try(2, B, 0.0, "", None, overtakes=False)
    late = silent(first_token_seconds=0.5, hedge_seconds=hedge_soon)
    assert next(late) == Try(1, A, 0.0, "", 0.5)
    assert late.send(LATE) == Try(2, B, 0.0, "", 0.5, overtakes=True)


def test_no_patience_without_a_deadline_and_no_second_attempt_without_a_retry_to_spend() -> None:
    assert next(silent()) == Try(1, A, 0.0, "", None)
    steps = fallback_policy(
        [A, B], RetryPolicy(), pick_key=any_key, may_retry=lambda: False, jitter=lambda: 0.5,
        first_token_seconds=1.0,
    )  # fmt: skip
    next(steps)
    assert steps.send(LATE) is None
    with pytest.raises(StopIteration):
        steps.send(UpstreamTimeout("x"))


def names(tries: list[Try]) -> list[str]:
    return [one.candidate.name for one in tries]


def test_another_model_before_the_same_one_again() -> None:
    tries = drive([A, B], [ConnectFailed("x")] * 9)
    assert names(tries) == ["a", "b", "a", "b"]
    assert [one.wait_seconds for one in tries] == [0.0, 0.0, 0.2, 0.2]


def test_an_error_that_no_retry_cures_ends_it() -> None:
    assert names(drive([A, B], [UpstreamRejected("bad")])) == ["a"]


def test_what_one_format_cannot_say_is_said_in_anothers_and_never_tried_again_in_its_own() -> None:
    unsaid, down = Untranslatable("n"), UpstreamUnavailable("down")
    assert names(drive([A, B], [unsaid, unsaid])) == ["a", "b"]
    # The one that can is retried, however the two are ordered.
    assert names(drive([A, B], [unsaid, down, down])) == ["a", "b", "b"]
    assert names(drive([A, B], [down, unsaid, down])) == ["a", "b", "a"]
    assert names(drive([A, B], [down, unsaid], budget=1)) == ["a", "b"], "a retry takes from their budget"
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
    saved, attempts = budget.saved, 0
    for _ in range(1000):
        budget.earn()
        attempts += 1
        while budget.spend():
            attempts += 1
    assert attempts <= 1.2 * 1000 + saved


def test_calls_that_fail_together_all_reach_the_next_model() -> None:
    budget = RetryBudget()
    for _ in range(2500):
        budget.earn()
    assert all(budget.spend() for _ in range(500))


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
    assert not breaker.is_open(6.3)


def _after(*failures: tuple[str, bool], answered: tuple[str, ...] = ("b", "a"), at: float = 5.0) -> CircuitBreaker:
    breaker = CircuitBreaker()
    for tenant in answered:
        breaker.record_success(0.0, tenant)
    for tenant, is_about_request in failures:
        breaker.record_failure(at, tenant, is_about_request=is_about_request)
    return breaker


def test_who_asks_what_the_upstream_breaks_at_closes_it_to_nobody_else() -> None:
    theirs, an_outage = ("a", True), ("a", False)
    assert _after(*[theirs] * 50).state == "closed"
    assert _after(*[theirs] * 4, ("b", True)).state == "open", "two tenants meet an outage"
    assert _after(*[theirs] * 4, an_outage).state == "open", "no connection is about no request"
    assert _after(*[an_outage, *[theirs] * 4]).state == "open"
    assert _after(*[theirs] * 5, answered=("a",)).state == "open", "nobody else is there"
    assert _after(*[theirs] * 5, at=31.0).state == "open", "nobody else has been there for long"


def test_the_breaker_probes_an_upstream_that_fails_every_other_second_not_always_then() -> None:
    draws = iter([0.1, 0.9, 0.4, 0.8, 0.2, 0.6])
    breaker, now = CircuitBreaker(failure_limit=1, jitter=lambda: next(draws)), 0.0
    moments: list[float] = []
    for _ in range(6):
        breaker.record_failure(now)
        now = breaker.probe_at
        moments.append(now % 4)
        assert breaker.allows(now)
    assert min(moments) < 2 < max(moments)


def test_an_answer_closes_the_breaker_whenever_its_pause_would_have_ended() -> None:
    breaker = CircuitBreaker()
    breaker.record_refusal(0.0, 30.0)
    assert not breaker.is_open(30.0)
    breaker.record_success()
    assert not breaker.is_open(1.0)
    assert breaker.allows(1.0)
    assert breaker.wait_seconds(1.0) == 0.0


def test_a_lost_probe_does_not_keep_the_breaker_open_for_ever() -> None:
    breaker = CircuitBreaker(failure_limit=1)
    breaker.record_failure(0.0)
    assert breaker.allows(2.0)
    assert not breaker.allows(3.0)
    assert breaker.allows(62.0)


def test_one_refusal_opens_it_for_as_long_as_asked() -> None:
    breaker = CircuitBreaker()
    breaker.record_refusal(0.0, 30.0)
    breaker.record_refusal(1.0, 5.0)
    assert breaker.is_open(29.9)
    assert breaker.wait_seconds(10.0) == 20.0
    assert breaker.allows(30.0)
    breaker.record_failure(30.5)
    assert breaker.wait_seconds(30.5) == 2.0, "a refusal is no step of the cool-down"


def test_a_probe_that_we_gave_up_leaves_its_place_to_the_next() -> None:
    breaker = CircuitBreaker(failure_limit=1)
    breaker.record_failure(0.0)
    assert breaker.allows(2.0)
    assert breaker.is_open(2.1)
    breaker.call_off(2.2)
    assert breaker.allows(2.2)


def test_late_is_the_slowest_twentieth_of_what_is_fresh() -> None:
    times = FirstTokenTimes()
    for number in range(20):
        assert times.late_seconds(number) is None
        times.record(float(number), 0.1 * number)
    assert times.late_seconds(20.0) == pytest.approx(1.9)
    assert times.late_seconds(301.0) is None, "only 18 of them are fresh"
