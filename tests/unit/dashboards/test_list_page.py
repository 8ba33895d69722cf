"""Which of many keys or budgets a page shows."""

import pytest

from dashboards.list_page import MOST, ListPage, page_number, pages_of, query_of


@pytest.mark.parametrize(
    ("asked", "number"),
    [(None, 1), ("2", 2), ("99", 99), ("0", 1), ("-1", 1), ("x", 1), ("", 1), ("9" * 5000, 1)],
)
def test_an_address_names_a_page(asked: str | None, number: int) -> None:
    assert page_number(asked) == number


@pytest.mark.parametrize(
    ("page", "shown", "text"),
    [(1, MOST, "1 to 50 of 103"), (2, MOST, "51 to 100 of 103"), (3, 3, "101 to 103 of 103")],
)
def test_so_many_at_a_time(page: int, shown: int, text: str) -> None:
    found = ListPage([{}] * shown, 103, page)
    assert (found.pages, found.range_text) == (3, text)
    links = found.links("Before", "After", lambda number: f"a?b&page={number}")
    assert [number for number in range(5) if f"page={number}" in links] == [
        n for n in (page - 1, page + 1) if 0 < n < 4
    ]
    assert ("Before" in links, "After" in links, "b&amp;page" in links) == (page > 1, page < 3, True)


def test_there_is_a_page_where_nothing_matches() -> None:
    assert (pages_of(0), pages_of(MOST), pages_of(MOST + 1)) == (1, 1, 2)


def test_the_gateway_is_asked_for_one_page() -> None:
    assert query_of("", 1) == {"find": None, "limit": 50, "offset": 0}
    assert query_of("red", 3) == {"find": "red", "limit": 50, "offset": 100}
