from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admission import Admission, Limits, parse_limits, window_start
from gateway.errors import BudgetExhausted, RateLimitExceeded

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
NOW_US = 1_795_000_000 * SECOND_US


def admission(**limits: object) -> Admission:
    return Admission(limits={"k": parse_limits(limits)})


def test_no_limits_means_no_limit() -> None:
    free = Admission()
    for number in range(1000):
        free.admit("k", tokens=10**9, now_us=NOW_US)
        free.reserve(str(number), "k", None, now_us=NOW_US)
    assert not free.has_budget("k")


def test_requests_per_minute_refill_and_say_when() -> None:
    limited = admission(requests_per_minute=60)
    for _ in range(60):
        limited.admit("k", tokens=1, now_us=NOW_US)
    with pytest.raises(RateLimitExceeded, match="60 requests a minute") as caught:
        limited.admit("k", tokens=1, now_us=NOW_US)
    assert caught.value.retry_after_seconds == pytest.approx(1.0)
    limited.admit("k", tokens=1, now_us=NOW_US + SECOND_US)


def test_a_refused_request_takes_no_rate() -> None:
    limited = admission(requests_per_minute=10, tokens_per_minute=100)
    limited.admit("k", tokens=100, now_us=NOW_US)
    for _ in range(50):
        with pytest.raises(RateLimitExceeded, match="tokens"):
            limited.admit("k", tokens=10, now_us=NOW_US)
    limited.admit("k", tokens=10, now_us=NOW_US + 6 * SECOND_US)


def test_a_request_above_the_whole_rate_needs_a_full_bucket_and_is_not_refused_for_ever() -> None:
    limited = admission(tokens_per_minute=100)
    limited.admit("k", tokens=500, now_us=NOW_US)
    with pytest.raises(RateLimitExceeded):
        limited.admit("k", tokens=1, now_us=NOW_US + 60 * SECOND_US)


def test_clock_jumps_backwards_harm_nobody() -> None:
    limited = admission(requests_per_minute=1)
    limited.admit("k", tokens=1, now_us=NOW_US)
    with pytest.raises(RateLimitExceeded):
        limited.admit("k", tokens=1, now_us=NOW_US - DAY_US)
    limited.admit("k", tokens=1, now_us=NOW_US + 60 * SECOND_US)


def test_the_budget_counts_what_is_held() -> None:
    limited = admission(budget_usd="0.000000000100")
    limited.reserve("a", "k", 60, now_us=NOW_US)
    with pytest.raises(BudgetExhausted, match="is held by requests under way"):
        limited.reserve("b", "k", 41, now_us=NOW_US)
    limited.reserve("c", "k", 40, now_us=NOW_US)
    limited.settle("a", 10)
    limited.reserve("d", "k", 50, now_us=NOW_US)
    limited.settle("c", None)
    limited.settle("d", 50)
    with pytest.raises(BudgetExhausted):
        limited.reserve("e", "k", 1, now_us=NOW_US)


def test_a_stream_extends_until_nothing_is_left() -> None:
    limited = admission(budget_usd="0.0000000001")
    limited.reserve("a", "k", 40, now_us=NOW_US)
    assert limited.extend("a", 80)
    assert limited.extend("a", 60), "already held"
    assert not limited.extend("a", 101)
    assert limited.extend("a", 100)
    limited.settle("a", 90)
    limited.reserve("b", "k", 10, now_us=NOW_US)


def test_unknown_prices_are_refused_on_budgeted_keys() -> None:
    with pytest.raises(BudgetExhausted, match="price is not known"):
        admission(budget_usd="1").reserve("a", "k", None, now_us=NOW_US)


def test_a_charge_belongs_to_the_window_of_its_admission() -> None:
    limited = admission(budget_usd="0.0000000001", budget_window="day")
    limited.reserve("old", "k", 100, now_us=NOW_US)
    limited.reserve("new", "k", 100, now_us=NOW_US + DAY_US)
    limited.settle("old", 100)
    limited.settle("new", 0)
    limited.reserve("again", "k", 100, now_us=NOW_US + DAY_US)


def test_the_books_seed_the_account() -> None:
    start = window_start("month", NOW_US)
    limited = Admission(limits={"k": Limits(budget_usd="0.0000000001")}, spent={("k", start): 95})
    with pytest.raises(BudgetExhausted):
        limited.reserve("a", "k", 6, now_us=NOW_US)
    limited.reserve("a", "k", 5, now_us=NOW_US)


@pytest.mark.parametrize(
    ("window", "expected"),
    [("day", datetime(2026, 11, 18, tzinfo=UTC)), ("month", datetime(2026, 11, 1, tzinfo=UTC))],
)
def test_windows(window: str, expected: datetime) -> None:
    assert window_start(window, NOW_US) == expected  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "stored", [{"budget": "1"}, {"budget_usd": "lots"}, {"budget_usd": "-1"}, {"requests_per_minute": "x"}]
)
def test_broken_limits_are_errors(stored: dict[str, str]) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError, ArithmeticError)):
        parse_limits(stored)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans()), max_size=60), st.integers(0, 400))
def test_settled_and_held_never_pass_the_budget(requests: list[tuple[int, int, bool]], budget: int) -> None:
    limited = admission(budget_usd=f"{budget}e-12")
    spent, held = 0, dict[str, int]()
    for number, (amount, cost, ends_one) in enumerate(requests):
        fits = spent + sum(held.values()) + amount <= budget
        try:
            limited.reserve(str(number), "k", amount, now_us=NOW_US)
            held[str(number)] = amount
            assert fits, "admitted although it did not fit"
        except BudgetExhausted:
            assert not fits, "a false refusal"
        if ends_one and held:
            name, kept = held.popitem()
            limited.settle(name, min(cost, kept))
            spent += min(cost, kept)
        assert spent + sum(held.values()) <= budget
