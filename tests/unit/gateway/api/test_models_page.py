"""Pages of models, as Anthropic's clients page through them."""

import pytest

from gateway.api.models_page import PageAsked, anthropic_page
from gateway.errors import InvalidRequest

NAMES = ["auto", "b", "c", "d", "e"]


def ids(page: dict[str, object]) -> list[str]:
    rows = page["data"]
    assert isinstance(rows, list)
    return [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("asked", "shown", "has_more"),
    [
        (PageAsked(), NAMES, False),
        (PageAsked(limit=2), ["auto", "b"], True),
        (PageAsked(limit=5), NAMES, False),
        (PageAsked(limit=2, after_id="b"), ["c", "d"], True),
        (PageAsked(limit=2, after_id="c"), ["d", "e"], False),
        (PageAsked(after_id="e"), [], False),
        (PageAsked(limit=2, before_id="e"), ["c", "d"], True),
        (PageAsked(limit=2, before_id="c"), ["auto", "b"], False),
        (PageAsked(before_id="auto"), [], False),
    ],
)
def test_pages(asked: PageAsked, shown: list[str], has_more: bool) -> None:
    page = anthropic_page(NAMES, asked)
    assert (ids(page), page["has_more"]) == (shown, has_more)
    assert (page["first_id"], page["last_id"]) == ((shown[0], shown[-1]) if shown else (None, None))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_one_after_the_other_hold_every_model_once(limit: int) -> None:
    seen: list[str] = []
    page = anthropic_page(NAMES, PageAsked(limit=limit))
    seen += ids(page)
    while page["has_more"]:
        page = anthropic_page(NAMES, PageAsked(limit=limit, after_id=str(page["last_id"])))
        seen += ids(page)
    assert seen == NAMES


@pytest.mark.parametrize("parameter", ["after_id", "before_id"])
def test_a_page_beside_no_model_of_ours_is_refused(parameter: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        anthropic_page(NAMES, PageAsked.model_validate({parameter: "gone"}))
    assert caught.value.param == parameter
