"""The view of a request to rank documents."""

import json
from dataclasses import replace
from typing import Any

import pytest

from backends.protocol import JSON
from backends.usage import Units
from gateway.errors import InvalidRequest
from gateway.pricing.price import ROUNDING_SLACK_PICO_USD
from gateway.request.cost_bounds import bound_pico_usd
from gateway.request.media_views import view_media
from gateway.request.view import RequestView
from tests.builders import make_candidate, make_prices


def view(documents: Any, query: str = "which?", **more: Any) -> RequestView:
    return view_media("rerank", json.dumps({"query": query, "documents": documents, **more}).encode(), JSON)


def test_every_document_is_read_with_the_query() -> None:
    seen = view(["a" * 40, {"text": "b" * 80, "title": "B"}], query="c" * 36)
    assert seen.input_tokens == 2 * 10 + 11 + 21
    assert seen.most_input_tokens == 2 * (36 + 8) + 120
    assert (seen.operation, seen.model, seen.is_stream, seen.most_output_tokens) == ("rerank", "auto", False, 0)
    assert view(["a"], model="m").model == "m"


@pytest.mark.parametrize(
    ("documents", "more", "units", "most"),
    [
        (["a"] * 100, {}, 1, 1),
        (["a"] * 101, {}, 2, 2),
        (["a" * 2_000] * 50, {}, 1, 3),  # 500 tokens with the query make two parts, at most five
        (["a" * 4_000] * 100, {}, 3, 9),
        (["a" * 4_000] * 100, {"max_tokens_per_doc": 400}, 1, 1),
        (["a" * 10**5] * 10, {}, 1, 1),  # cut after 4,096 tokens
        (["a" * 10**5] * 100, {}, 9, 9),
        (["ü" * 450] * 100, {}, 1, 2),  # bytes count, not characters
    ],
)
def test_searches_are_counted_as_they_are_billed(documents: Any, more: dict[str, Any], units: int, most: int) -> None:
    seen = view(documents, query="q", **more)
    assert (seen.units, seen.most_units) == (Units(search_units=units), Units(search_units=most))


def test_a_budget_holds_what_they_can_cost_at_most() -> None:
    seen = view(["a" * 4_000] * 100, query="q")
    by_search = replace(make_prices(0, 0), per_search_unit_pico_usd=2 * 10**9)
    slack = ROUNDING_SLACK_PICO_USD
    assert bound_pico_usd(make_candidate(prices=by_search), seen) == 9 * 2 * 10**9 + slack
    assert bound_pico_usd(make_candidate(prices=make_prices(0.05, 0)), seen) == 100 * 4_009 * 50_000 + slack
    assert bound_pico_usd(make_candidate(prices=None), seen) is None


def test_a_long_query_leaves_less_room_in_every_part() -> None:
    assert view(["a" * 490] * 100, query="q").most_units.search_units == 1
    assert view(["a" * 490] * 100, query="q" * 400).most_units.search_units == 2


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"query": "q", "documents": []}, "documents", "at least one document"),
        ({"query": "q", "documents": [""] * 100_001}, "documents", "at most 100,000"),
        ({"query": "q"}, "documents", "missing"),
        ({"documents": ["a"]}, "query", "missing"),
        ({"query": "q", "documents": [{"title": "a"}]}, "documents[0].text", "missing"),
        ({"query": "q", "documents": ["a"], "top_n": 0}, "top_n", "from 1"),
        ({"query": "q", "documents": ["a"], "max_tokens_per_doc": 0}, "max_tokens_per_doc", "from 1"),
        ({"query": "q", "documents": ["a"], "rank_fields": ["title"]}, "rank_fields", "only the `text` of a document"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        view_media("rerank", json.dumps(body).encode(), JSON)
    assert caught.value.param == param


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        view_media("rerank", b"{", JSON)
    assert caught.value.code == "invalid_json"
