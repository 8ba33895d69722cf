"""What an unreadable answer may be billed: as much as arrived, and never more than the request allowed."""

import json
from typing import Any

import pytest

from backends.errors import UnreadableAnswer
from backends.usage import Usage
from gateway.request.cost_bounds import OUTPUT_BOUND_TOKENS, bound_pico_usd
from gateway.request.metering import Meter
from gateway.request.settlement import NO_EXTRA, unread_cost
from gateway.request.view import RequestView, parse_request
from gateway.routing.snapshot import Candidate
from tests.builders import make_candidate, make_local, make_prices

HOSTED = make_candidate(prices=make_prices(1.0, 4.0))
INPUT, OUTPUT = 1_000_000, 4_000_000


def view(**body: Any) -> RequestView:
    full = {"model": "auto", "messages": [{"role": "user", "content": "hello"}], **body}
    return parse_request("chat.completions", json.dumps(full).encode())


def cost_of(asked: RequestView, error: UnreadableAnswer, candidate: Candidate = HOSTED) -> Any:
    return unread_cost(candidate, asked, Meter(0.0), error)


@pytest.mark.parametrize(
    ("characters", "body", "output_tokens"),
    [
        (0, {}, 0),
        (400, {}, 100),
        (400, {"max_tokens": 30}, 30),
        (400, {"max_tokens": 30, "n": 2}, 60),
        (10**9, {}, OUTPUT_BOUND_TOKENS),
    ],
)
def test_as_many_tokens_as_its_length_and_the_request_allow(
    characters: int, body: dict[str, int], output_tokens: int
) -> None:
    asked = view(**body)
    cost = cost_of(asked, UnreadableAnswer("cut", output_characters=characters))
    assert cost.estimate_pico_usd == asked.input_tokens * INPUT + output_tokens * OUTPUT
    assert (cost.least_pico_usd, cost.most_pico_usd) == (0, bound_pico_usd(HOSTED, asked))
    assert cost.estimate_pico_usd <= cost.most_pico_usd


def test_a_usage_that_came_is_charged_exactly() -> None:
    cost = cost_of(view(), UnreadableAnswer("no stream", usage=Usage(input_tokens=7, output_tokens=2)))
    assert cost.is_exact
    assert cost.estimate_pico_usd == 7 * INPUT + 2 * OUTPUT


def test_vectors_are_no_output() -> None:
    asked = parse_request("embeddings", json.dumps({"model": "m", "input": "hello"}).encode())
    cost = cost_of(asked, UnreadableAnswer("cut", output_characters=40_000))
    assert cost.estimate_pico_usd == asked.input_tokens * INPUT


def test_an_engine_of_our_own_bills_nobody_and_an_unknown_price_is_never_zero() -> None:
    error = UnreadableAnswer("cut", output_characters=400)
    assert cost_of(view(), error, make_local()) is NO_EXTRA
    unknown = cost_of(view(), error, make_candidate(prices=None))
    assert (unknown.estimate_pico_usd, unknown.most_pico_usd) == (None, None)
