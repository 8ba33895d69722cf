"""Pages of items: together they contain every item once, in either order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.listed import Order, page_of
from gateway.errors import InvalidRequest

IDS = st.lists(st.text(min_size=1, max_size=4), unique=True, max_size=60)


@given(IDS, st.integers(1, 100), st.sampled_from(["asc", "desc"]))
def test_page_by_page_comes_every_item_once(ids: list[str], limit: int, order: Order) -> None:
    came: list[str] = []
    after, has_more = None, True
    while has_more:
        page, has_more = page_of(ids, limit=limit, order=order, after=after, of="conversation")
        assert len(page) == limit or not has_more
        assert page or not ids, "no page is empty but the only one"
        came += page
        after = page[-1] if page else None
    assert came == (ids if order == "asc" else ids[::-1])


@given(IDS.filter(len), st.data(), st.sampled_from(["asc", "desc"]))
def test_behind_an_item_stands_what_follows_it(ids: list[str], data: st.DataObject, order: Order) -> None:
    place = data.draw(st.integers(0, len(ids) - 1))
    page, has_more = page_of(ids, limit=100, order=order, after=ids[place], of="conversation")
    assert (page, has_more) == (ids[place + 1 :] if order == "asc" else ids[:place][::-1], False)


@pytest.mark.parametrize(("limit", "after"), [(0, None), (101, None), (-1, None), (20, "nobody's")])
def test_where_there_is_no_such_page_that_is_told(limit: int, after: str | None) -> None:
    with pytest.raises(InvalidRequest, match=r"^(limit|after): "):
        page_of(["a"], limit=limit, order="asc", after=after, of="conversation")
