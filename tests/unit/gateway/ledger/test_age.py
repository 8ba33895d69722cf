"""The age of the oldest unshipped entry."""

import pytest

from gateway.ledger.age import AgeMarks
from gateway.ledger.segments import Position


def test_it_is_the_age_of_the_first_mark_that_is_not_shipped() -> None:
    marks = AgeMarks()
    assert marks.oldest_seconds(100.0) == 0.0
    for offset, now in ((10, 1.0), (20, 1.2), (30, 2.0), (40, 5.0)):
        marks.reached(Position(1, offset), now)
    assert marks.oldest_seconds(6.0) == 5.0
    marks.shipped(Position(1, 10))  # one mark covers the first two positions
    assert marks.oldest_seconds(6.0) == 5.0
    marks.shipped(Position(1, 35))
    assert marks.oldest_seconds(6.0) == 1.0
    marks.shipped(Position(2, 0))
    assert marks.oldest_seconds(6.0) == 0.0


@pytest.mark.parametrize("every_seconds", [0.001, 0.1, 1.0])
def test_it_is_right_to_half_a_second_however_often_it_is_told(every_seconds: float) -> None:
    marks, steps = AgeMarks(), 2000
    for step in range(steps):
        marks.reached(Position(1, step + 1), step * every_seconds)
    now = steps * every_seconds
    for shipped in range(0, steps, 97):
        marks.shipped(Position(1, shipped))
        assert marks.oldest_seconds(now) == pytest.approx(now - shipped * every_seconds, abs=0.5 + every_seconds)
