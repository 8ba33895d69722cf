import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.economics.queueing import MOST_STEPS, erlang_b_by_fleet, erlang_b_each


def erlang_b_by_definition(slots: int, load: float) -> float:
    terms = [load**k / math.factorial(k) for k in range(slots + 1)]
    return terms[-1] / sum(terms)


@given(slots=st.integers(1, 40), load=st.floats(0.01, 60))
def test_the_recursion_is_the_definition(slots: int, load: float) -> None:
    expected = [erlang_b_by_definition(slots, load), 0.0]
    assert erlang_b_each(slots, np.array([load, 0.0])) == pytest.approx(expected, rel=1e-9)


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


def test_the_lost_share_by_simulation() -> None:
    """Blocking does not depend on the distribution of lengths: constant residence gives the same Erlang B."""
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
    expected = erlang_b_by_definition(slots, load)
    assert lost / arrivals == pytest.approx(expected, abs=4 * math.sqrt(expected / arrivals) * 2)
