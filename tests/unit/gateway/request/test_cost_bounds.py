"""What a request can cost at most: as tight as its body allows, and never below what it may really cost."""

import json
from typing import Any

import pytest

from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service
from gateway.request.cost_bounds import bound_pico_usd
from gateway.request.view import RequestView, parse_request
from tests.builders import make_candidate

PLAIN, WRITE, IMAGE = 1, 2, 8
RATES = Rates(input=PLAIN, output=0, cache_write_1h=WRITE, image_input=IMAGE)
PRICES = ModelPrices(Ladder(RATES), 0, "test", services={"priority": Service(ladder=Ladder(Rates(input=3, output=0)))})


def view(content: Any = "hello", **body: Any) -> RequestView:
    full = {"model": "auto", "messages": [{"role": "user", "content": content}], **body}
    return parse_request("chat.completions", json.dumps(full).encode())


def dearest_rate(of: RequestView) -> int | None:
    bound = bound_pico_usd(make_candidate(prices=PRICES), of)
    return None if bound is None else bound // (2 * of.input_tokens)


LONG = "word " * 400


@pytest.mark.parametrize(
    ("asked", "rate"),
    [
        (view(LONG), PLAIN),
        (view([{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]), WRITE),
        (view([{"type": "text", "text": LONG}, {"type": "image_url", "image_url": {"url": "data:"}}]), IMAGE),
        (view(LONG, service_tier="priority"), 3),
        (view(LONG, service_tier="unheard-of"), None),
    ],
)
def test_the_bound_is_the_dearest_that_the_body_allows(asked: RequestView, rate: int | None) -> None:
    assert dearest_rate(asked) == rate


def test_an_escaped_field_name_is_still_that_field() -> None:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": LONG}]}).replace(
        '"content"', '"cache\\u005fcontrol": {}, "content"'
    )
    assert json.loads(body)["messages"][0]["cache_control"] == {}
    assert dearest_rate(parse_request("chat.completions", body.encode())) == IMAGE
