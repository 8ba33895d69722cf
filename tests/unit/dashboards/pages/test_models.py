"""The list of prices says how many there are, and where the rest is."""

import pytest

from dashboards.pages.models import cited, listed


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


def test_a_cited_page_is_told_by_its_site() -> None:
    assert cited("a 1.0, citing https://prices.example.com/docs/en/overview") == "a 1.0, citing prices.example.com"
    assert cited("a 1.0") == "a 1.0"
