"""The list of prices says how many there are, and where the rest is."""

import pytest

from dashboards.pages.models import listed


@pytest.mark.parametrize(
    ("shown", "total", "said"),
    [
        (1, 1, "1 model in all."),
        (7, 7, "7 models in all."),
        (100, 845, "The first 100 of 845 models; a search finds the others."),
    ],
)
def test_a_list_cut_short_says_so(shown: int, total: int, said: str) -> None:
    assert listed(shown, total) == said
