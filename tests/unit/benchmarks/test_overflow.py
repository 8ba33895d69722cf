"""A short run of the overflow simulation: the real decision recovers what the formulas say, a queue does not."""

import pytest

from benchmarks.overflow.__main__ import simulated
from benchmarks.overflow.example import GPU_SECONDS, RESIDENCE_SECONDS, month_saving_usd
from benchmarks.overflow.measure import RELATIVE_LOADS, saving


def test_the_example_is_that_of_the_books() -> None:
    assert pytest.approx(0.28125) == GPU_SECONDS
    assert pytest.approx(18.0) == RESIDENCE_SECONDS
    full = 1 / GPU_SECONDS
    assert month_saving_usd({12.0: full, 6.0: full, 2.0: 2.0}) == pytest.approx(567.36, abs=0.01)
    assert saving([min(1.0, load) for load in RELATIVE_LOADS]) == pytest.approx(567.36 / 480, abs=1e-4)


def test_overflow_by_the_real_decision_against_a_queue_that_keeps_its_promise() -> None:
    found = simulated(0.5)
    assert found["overflow_share"] == pytest.approx(0.96, abs=0.03)
    assert found["queue_share"] == pytest.approx(0.51, abs=0.06)
    assert found["overflow_blocked"]["12.0"] == pytest.approx(0.7056, abs=0.02)
