"""The most a request can cost: as tight as its body allows, and never below what it may really cost."""

import json
from typing import Any

import pytest

from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service, Step
from gateway.request.cost_bounds import (
    INCREMENT_TOKENS,
    OUTPUT_BOUND_TOKENS,
    bound_pico_usd,
    increment_pico_usd,
    unseen_tokens,
)
from gateway.request.metering import Meter
from gateway.request.view import RequestView, parse_request
from gateway.routing.snapshot import CacheWrites, Candidate
from tests.builders import make_candidate, make_local

PLAIN, WRITE, IMAGE = 1, 2, 8
RATES = Rates(input=PLAIN, output=0, cache_write_1h=WRITE, image_input=IMAGE)
PRICES = ModelPrices(Ladder(RATES), 0, "test", services={"priority": Service(ladder=Ladder(Rates(input=3, output=0)))})


def view(content: Any = "hello", **body: Any) -> RequestView:
    full = {"model": "auto", "messages": [{"role": "user", "content": content}], **body}
    return parse_request("chat.completions", json.dumps(full).encode())


def dearest_rate(of: RequestView, asked_tier: str | None = None) -> int | None:
    bound = bound_pico_usd(make_candidate(prices=PRICES, asked_tier=asked_tier), of)
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


def test_a_model_that_is_always_asked_for_a_tier_is_bounded_by_that_tier() -> None:
    assert dearest_rate(view(LONG), asked_tier="priority") == 3
    assert dearest_rate(view(LONG, service_tier="flex"), asked_tier="priority") == 3
    assert dearest_rate(view(LONG), asked_tier="unheard-of") is None


@pytest.mark.parametrize(
    "prices",
    [
        ModelPrices(Ladder(Rates(1, 0), (Step(100, RATES),)), 0, "test"),
        ModelPrices(Ladder(Rates(1, 0)), 0, "test", services={"priority": Service(ladder=Ladder(RATES))}),
    ],
)
def test_a_rate_of_a_long_prompt_or_of_a_tier_alone_counts_too(prices: ModelPrices) -> None:
    for content, rate in ((LONG, PLAIN), ([{"type": "text", "text": LONG}, {"type": "image_url"}], IMAGE)):
        asked = view(content, service_tier=next(iter(prices.services), None))
        bound = bound_pico_usd(make_candidate(prices=prices), asked)
        assert bound is not None
        assert bound // max(2 * asked.input_tokens, asked.body_bytes // 2) == rate


class Searched(bytes):
    """Counts how often it is."""

    times = 0

    def find(self, *asked: Any) -> int:
        Searched.times += 1
        return super().find(*asked)


def test_a_stream_does_not_have_its_body_searched_again_for_each_increment() -> None:
    body = Searched(json.dumps({"model": "auto", "messages": [{"role": "user", "content": LONG}]}).encode())
    asked, times = parse_request("chat.completions", body), [Searched.times]
    for characters in (0, 1_000, 2_000):
        increment_pico_usd(make_candidate(prices=PRICES), asked, characters)
        times.append(Searched.times)
    assert times[0] < times[1] == times[2] == times[3]


WRITTEN = Rates(input=4, output=0, cached_input=1, cache_write_5m=5, cache_write_1h=8)


@pytest.mark.parametrize(
    ("asked", "writes", "rate"),
    [
        (view(LONG * 3), CacheWrites("provider", 1024), 5),  # GPT-5.6 and later write without being asked
        (view(LONG), CacheWrites("provider", 1024), 5),  # 505 by the estimate: twice as many are reckoned with
        (view(LONG[:1200]), CacheWrites("provider", 1024), 4),
        (view(LONG * 3, prompt_cache_options={"ttl": "12h"}), CacheWrites("provider", 1024), 8),
        (view(LONG * 3), CacheWrites("gateway", 512), 5),
        (view(LONG * 3), CacheWrites(), 4),
        (view(LONG * 3, cache_control={"type": "ephemeral", "ttl": "1h"}), CacheWrites("gateway", 512), 8),
    ],
)
def test_what_is_written_to_a_cache_unasked_is_held(asked: RequestView, writes: CacheWrites, rate: int) -> None:
    bound = bound_pico_usd(make_candidate(prices=ModelPrices(Ladder(WRITTEN), 0, "test"), cache_writes=writes), asked)
    assert bound is not None
    assert bound // max(2 * asked.input_tokens, round(asked.body_bytes / 2)) == rate


def meter(*, sent_at: float | None = 10.0, first_output_at: float | None = None, characters: int = 0) -> Meter:
    return Meter(0.0, first_output_at=first_output_at, output_characters=characters, sent_at=sent_at)


THINKER = make_candidate(supports=frozenset({"streaming", "reasoning"}))


@pytest.mark.parametrize(
    ("candidate", "asked", "measured", "tokens"),
    [
        (THINKER, view(stream=True), meter(), 1000),
        (THINKER, view(stream=True), meter(first_output_at=12.0, characters=4000), 100),
        (THINKER, view(stream=True, n=3), meter(), 3000),
        (THINKER, view(stream=True, max_tokens=700), meter(), 700),
        (THINKER, view(stream=True, max_tokens=700), meter(first_output_at=29.0, characters=2400), 100),
        (THINKER, view(stream=True, max_tokens=700), meter(first_output_at=29.0, characters=4000), 0),
        (THINKER, view(stream=True), meter(sent_at=None), 0),
        (THINKER, view(stream=True), meter(sent_at=40.0), 0),
        (make_candidate(), view(stream=True), meter(), 0),
        (make_local(supports=frozenset({"streaming", "reasoning"})), view(stream=True), meter(), 0),
    ],
    ids=[
        *("silent", "silent first", "choices", "limited", "limited with what was said", "more said than that"),
        *("not sent", "clock put back", "no thinker", "our own engine"),
    ],
)
def test_what_may_have_been_thought_unseen(
    candidate: Candidate, asked: RequestView, measured: Meter, tokens: int
) -> None:
    """It ended at second 30, at 50 tokens a second."""
    assert unseen_tokens(candidate, asked, measured, 30.0, 50.0) == tokens


def test_an_escaped_field_name_is_still_that_field() -> None:
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": LONG}]}).replace(
        '"content"', '"cache\\u005fcontrol": {}, "content"'
    )
    assert json.loads(body)["messages"][0]["cache_control"] == {}
    assert dearest_rate(parse_request("chat.completions", body.encode())) == IMAGE


def test_an_answer_of_no_token_costs_no_output() -> None:
    def bound(limit: int) -> int | None:
        body = {"model": "auto", "messages": [{"role": "user", "content": LONG}], "max_tokens": limit}
        dear = ModelPrices(Ladder(Rates(input=0, output=1_000_000)), 0, "test")
        return bound_pico_usd(make_candidate(prices=dear), parse_request("messages", json.dumps(body).encode()))

    filling, answering = bound(0), bound(1)
    assert filling is not None
    assert answering == filling + 1_000_000


def held_input(asked: RequestView) -> int:
    """Input tokens covered by the bound, with output priced at 0."""
    rates = Rates(input=1_000_000, output=0)
    bound = bound_pico_usd(make_candidate(prices=ModelPrices(Ladder(rates), 0, "test"), context_window=200_000), asked)
    assert bound is not None
    return bound // 1_000_000


HIDDEN = "hidden " * 10_000


@pytest.mark.parametrize(
    "asked",
    [
        view(a_field_to_come=HIDDEN),
        view([{"type": "text", "text": "the word image"}, {"type": "a part to come", "said": HIDDEN}]),
        parse_request("responses", json.dumps({"model": "m", "input": [{"action": {"said": HIDDEN}}]}).encode()),
    ],
)
def test_what_the_estimate_does_not_look_at_is_held_by_its_length(asked: RequestView) -> None:
    assert held_input(asked) >= 20_000
    assert asked.input_tokens < 2_000


PICTURE = "data:image/png;base64," + "A" * 400_000


@pytest.mark.parametrize(
    "asked",
    [
        view([{"type": "image_url", "image_url": {"url": PICTURE}}]),
        parse_request(
            "responses",
            json.dumps(
                {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": PICTURE}]}]}
            ).encode(),
        ),
        parse_request(
            "messages",
            json.dumps(
                {
                    "model": "m",
                    "max_tokens": 1,
                    "messages": [
                        {
                            "role": "user",
                            "content": [
                                {"type": "image", "source": {"type": "base64", "data": PICTURE}},
                                {
                                    "type": "tool_result",
                                    "tool_use_id": "t",
                                    "content": [{"type": "image", "source": {"type": "base64", "data": PICTURE}}],
                                },
                            ],
                        }
                    ],
                }
            ).encode(),
        ),
    ],
)
def test_a_picture_is_not_held_by_its_bytes(asked: RequestView) -> None:
    assert held_input(asked) < 5_000
    assert not asked.is_open_ended


@pytest.mark.parametrize(
    "asked",
    [
        view([{"type": "file", "file": {"file_id": "f"}}]),
        view([{"type": "text", "text": "hear"}, {"type": "input_audio", "input_audio": {"data": "AAAA"}}]),
        parse_request("responses", b'{"model":"m","input":"go on","previous_response_id":"resp_1"}'),
        parse_request("responses", b'{"model":"m","input":"go on","conversation":{"id":"conv_1"}}'),
        parse_request("responses", b'{"model":"m","prompt":{"id":"pmpt_1"}}'),
        parse_request(
            "messages",
            b'{"model":"m","max_tokens":1,"messages":[{"role":"user","content":['
            b'{"type":"document","source":{"type":"url","url":"https://example.com/long.pdf"}}]}]}',
        ),
    ],
)
def test_where_the_body_does_not_tell_a_whole_window_is_held(asked: RequestView) -> None:
    assert held_input(asked) >= 200_000


@pytest.mark.parametrize("limits", [(1, 900), (900, 1), (None, 900), (900, None)])
def test_of_two_limits_the_longer_one_is_held(limits: tuple[int | None, int | None]) -> None:
    assert view(max_completion_tokens=limits[0], max_tokens=limits[1]).max_output_tokens == 900


def held_output(asked: RequestView, *supports: str) -> int:
    """Output tokens that a stream holds after 400."""
    prices = ModelPrices(Ladder(Rates(input=0, output=1_000_000)), 0, "test")
    held = increment_pico_usd(make_candidate(prices=prices, supports=frozenset(supports)), asked, 1600)
    assert held is not None
    return held // 1_000_000


def test_what_a_prediction_says_is_held_as_output() -> None:
    """OpenAI bills what it did not use of it as output."""
    predicted = {"type": "content", "content": "x" * 40_000}
    held = held_output(view(stream=True, prediction=predicted), "streaming") - held_output(
        view(stream=True), "streaming"
    )
    assert 20_000 <= held < 20_100


@pytest.mark.parametrize(
    ("asked", "plain", "reasoning"),
    [
        (view(stream=True, max_completion_tokens=30_000), 400 + INCREMENT_TOKENS, 30_000),
        (view(stream=True, max_completion_tokens=30_000, n=2), 400 + INCREMENT_TOKENS, 60_000),
        (view(stream=True), 400 + INCREMENT_TOKENS, 400 + OUTPUT_BOUND_TOKENS),
        (view(stream=True, n=2), 400 + INCREMENT_TOKENS, 400 + 2 * OUTPUT_BOUND_TOKENS),
    ],
)
def test_what_a_model_may_reason_unseen_is_held_before_it_is_asked(
    asked: RequestView, plain: int, reasoning: int
) -> None:
    assert held_output(asked, "streaming") == plain
    assert held_output(asked, "streaming", "reasoning") == reasoning


def test_what_our_own_engine_reasons_is_seen() -> None:
    asked = view(stream=True, max_tokens=30_000)
    local, reasoning = make_local(), make_local(supports=frozenset({"streaming", "reasoning"}))
    assert increment_pico_usd(local, asked, 0) == increment_pico_usd(reasoning, asked, 0)
