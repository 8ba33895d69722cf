"""Which of many keys a page shows."""

import pytest

from dashboards.key_list import MOST, KeyList, page_number, pages_of, query_of


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
    found = KeyList([{}] * shown, 103, page)
    assert (found.pages, found.range_text) == (3, text)


def test_there_is_a_page_where_nothing_matches() -> None:
    assert (pages_of(0), pages_of(MOST), pages_of(MOST + 1)) == (1, 1, 2)


def test_the_gateway_is_asked_for_one_page() -> None:
    assert query_of("", 1) == {"find": None, "limit": 50, "offset": 0}
    assert query_of("red", 3) == {"find": "red", "limit": 50, "offset": 100}
