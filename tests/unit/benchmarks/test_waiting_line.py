import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.overflow.waiting_line import erlang_b, erlang_c, largest_arrival_rate, wait_probability


@given(slots=st.integers(1, 200), share=st.floats(0.01, 0.99))
def test_waiting_is_likelier_than_losing(slots: int, share: float) -> None:
    assert erlang_b(slots, share * slots) <= erlang_c(slots, share * slots) <= 1


def test_one_slot_is_the_textbook_queue() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert wait_probability(1, 0.7, 1.0, 2.0) == pytest.approx(0.7 * math.exp(-0.3 * 2))


@pytest.mark.parametrize("arrivals", [64 / 18, 4.0, 100.0])
def test_an_unstable_queue_waits_for_ever(arrivals: float) -> None:
    assert erlang_c(64, arrivals * 18) == 1.0
    assert wait_probability(64, arrivals, 18.0, 1e6) == 1.0


def test_no_traffic_neither_waits_nor_is_lost() -> None:
    assert erlang_b(8, 0.0) == 0.0
    assert wait_probability(8, 0.0, 1.0, 0.0) == 0.0


@settings(max_examples=25)
@given(slots=st.integers(1, 128), wait=st.floats(0.01, 5))
def test_the_largest_rate_is_on_the_edge(slots: int, wait: float) -> None:
    rate = largest_arrival_rate(slots, 10.0, wait)
    assert wait_probability(slots, rate * 0.999, 10.0, wait) <= 0.05
    assert wait_probability(slots, rate * 1.001, 10.0, wait) > 0.05


def test_no_rate_meets_a_promise_that_is_already_broken() -> None:
    assert largest_arrival_rate(64, 18.0, -0.1) == 0.0
