"""How columns of sums are kept."""

import numpy as np
import pytest

from gateway.storage.sums.by_dimension import MOST, Known, SpanSums, grouped, joined, narrowed


@pytest.mark.parametrize(
    ("figures", "size"),
    [([], 0), ([0, 0], 2), ([-128, 127], 2), ([0, 128], 4), ([-(2**31), 0], 8), ([2**31, 0], 16), ([MOST, -MOST], 16)],
)
def test_a_figure_takes_no_more_room_than_it_needs(figures: list[int], size: int) -> None:
    """A year of 5,000 keys did not fit: what the overview asks for drove out what it had asked for before."""
    [kept] = narrowed(np.array([figures], np.int64))
    assert (kept.tolist(), kept.nbytes) == (figures, size)


def test_narrow_figures_of_several_spans_add_up() -> None:
    parts = [SpanSums(("requests",), np.array([1, 2]), narrowed(np.array([[n, n]]))) for n in (100, 120, MOST)]
    known = Known(np.array([1, 2]), {"team": ["red", "red"], "status": ["completed"] * 2, "is_simulated": [False] * 2})
    names = ("requests", "successful_requests")
    assert [*grouped(joined(parts), known, ("team",), names)] == [(("red",), (2 * (220 + MOST),) * 2)]
