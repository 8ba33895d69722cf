"""Which of many keys a page shows."""

from typing import Any

import pytest

from dashboards.key_list import MOST, listed


def make_key(name: str, **changed: Any) -> dict[str, Any]:
    return {"name": name, "id": f"key_{name}", "role": "app", "team": None, "project": None, "tags": [], **changed}


KEYS = [make_key("search", team="Red", tags=["eu"]), make_key("chat", team="red"), make_key("ann", role="owner")]
MANY = [make_key(f"service-{number}") for number in range(2 * MOST + 3)]


@pytest.mark.parametrize(
    ("find", "names"),
    [
        (None, ["search", "chat", "ann"]),
        ("  ", ["search", "chat", "ann"]),
        ("RED", ["search", "chat"]),
        ("red eu", ["search"]),
        ("owner", ["ann"]),
        ("key_chat", ["chat"]),
        ("redeu", []),
    ],
)
def test_every_word_must_be_somewhere(find: str | None, names: list[str]) -> None:
    found = listed(KEYS, find=find, page=None)
    assert [one["name"] for one in found.shown] == names
    assert (found.matching, found.pages) == (len(names), 1)


@pytest.mark.parametrize(
    ("page", "number", "text"),
    [
        (None, 1, "1 to 50 of 103"),
        ("2", 2, "51 to 100 of 103"),
        ("3", 3, "101 to 103 of 103"),
        ("99", 3, "101 to 103 of 103"),
        ("0", 1, "1 to 50 of 103"),
        ("-1", 1, "1 to 50 of 103"),
        ("x", 1, "1 to 50 of 103"),
    ],
)
def test_so_many_at_a_time_and_the_nearest_page_there_is(page: str | None, number: int, text: str) -> None:
    found = listed(MANY, find=None, page=page)
    assert (found.page, found.pages, found.range_text) == (number, 3, text)
    assert list(found.shown) == MANY[(number - 1) * MOST : number * MOST]
