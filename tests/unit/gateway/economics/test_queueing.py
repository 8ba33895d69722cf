import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.economics.queueing import (
    MOST_STEPS,
    erlang_b,
    erlang_b_by_fleet,
    erlang_b_each,
    erlang_c,
    largest_arrival_rate,
    wait_probability,
)


def erlang_b_by_definition(slots: int, load: float) -> float:
    terms = [load**k / math.factorial(k) for k in range(slots + 1)]
    return terms[-1] / sum(terms)


@given(slots=st.integers(1, 40), load=st.floats(0.01, 60))
def test_the_recursion_is_the_definition(slots: int, load: float) -> None:
    assert erlang_b(slots, load) == pytest.approx(erlang_b_by_definition(slots, load), rel=1e-9)
    assert erlang_b_each(slots, np.array([load, 0.0])).tolist() == [erlang_b(slots, load), 0.0]


@given(slots=st.integers(1, 30), most=st.integers(1, 8), load=st.floats(0, 60))
def test_fleets_of_each_size_come_of_one_run(slots: int, most: int, load: float) -> None:
    loads = np.array([load, 3.0])
    by_fleet = [blocked.tolist() for blocked in erlang_b_by_fleet(slots, most, loads)]
    assert by_fleet == [erlang_b_each(slots * count, loads).tolist() for count in range(1, most + 1)]


@pytest.mark.parametrize("slots", [MOST_STEPS + 1, 30_000])
def test_of_many_slots_the_definition_says_the_same_without_a_step_for_each(slots: int) -> None:
    loads = slots * np.array([0.0, 1e-6, 0.5, 0.97, 0.999, 1.0, 1.001, 1.2, 50.0])
    [expected] = erlang_b_by_fleet(slots, 1, loads)
    assert erlang_b_each(slots, loads) == pytest.approx(expected, rel=1e-9, abs=1e-300)


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


def test_the_lost_share_by_simulation() -> None:
    """Loss does not care how lengths are spread: constant residence gives the same Erlang B."""
    generator = np.random.default_rng(7)
    slots, load, arrivals = 12, 9.0, 60_000
    times = np.cumsum(generator.exponential(1.0 / load, arrivals)).tolist()
    busy_until: list[float] = []
    lost = 0
    for now in times:
        busy_until = [end for end in busy_until if end > now]
        if len(busy_until) < slots:
            busy_until.append(now + 1.0)
        else:
            lost += 1
    expected = erlang_b(slots, load)
    assert lost / arrivals == pytest.approx(expected, abs=4 * math.sqrt(expected / arrivals) * 2)
