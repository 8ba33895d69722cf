"""Which part of a prompt is expected again, what is marked for caching, and what that costs now."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service, Step
from gateway.request.turns import Reuse
from gateway.request.view import parse_request
from gateway.routing.decide import decide
from gateway.routing.prompt_reuse import marks_for, tokens_to_repeat
from gateway.routing.snapshot import CacheWrites
from tests.builders import make_candidate, make_facts, make_request, make_snapshot

GATEWAY, PROVIDER, CALLER = CacheWrites("gateway", 512), CacheWrites("provider", 1024), CacheWrites()


@pytest.mark.parametrize(
    ("sent", "first", "beginning", "opens", "expected"),
    [
        (0, 800, 900, False, 0),  # a call by itself
        (0, 800, 900, True, 1000),  # its tools will be called
        (800, 800, 900, False, 900),  # others begin as it does
        (800, 800, 0, False, 0),  # but with no system prompt
        (810, 800, 900, False, 1000),  # a conversation
        (800, 800, 2000, False, 1000),  # never more than there is
    ],
)
def test_what_will_be_sent_again(sent: int, first: int, beginning: int, opens: bool, expected: int) -> None:
    found = tokens_to_repeat(
        input_tokens=1000, sent_tokens=sent, first_turn_tokens=first, beginning_tokens=beginning, opens_tool_use=opens
    )
    assert found == expected


@pytest.mark.parametrize(
    ("repeated", "writes", "marks"),
    [
        (1000, GATEWAY, "conversation"),
        (600, GATEWAY, "beginning"),
        (511, GATEWAY, ""),
        (0, GATEWAY, ""),
        (1000, PROVIDER, ""),
        (1000, CALLER, ""),
    ],
)
def test_what_is_marked(repeated: int, writes: CacheWrites, marks: str) -> None:
    assert marks_for(make_facts(input_tokens=1000, repeated_tokens=repeated), writes) == marks


FLAT = ModelPrices(Ladder(Rates(input=100, output=0, cached_input=10, cache_write_5m=125)), 0, "test")
STEPPED = ModelPrices(Ladder(FLAT.rates, (Step(1_000_000, FLAT.rates),)), 0, "test")


@pytest.mark.parametrize("prices", [FLAT, STEPPED])
@pytest.mark.parametrize(
    ("repeated", "warm", "writes", "cost"),
    [
        (0, 0, CALLER, 200_000),
        (2000, 0, CALLER, 200_000),
        (2000, 0, GATEWAY, 250_000),
        (600, 0, GATEWAY, 140_000 + 75_000),
        (511, 0, GATEWAY, 200_000),
        (2000, 1500, GATEWAY, 15_000 + 62_500),
        (600, 1500, GATEWAY, 15_000 + 50_000),  # more is warm than will come again
        (0, 0, PROVIDER, 250_000),
        (0, 1536, PROVIDER, 15_360 + 58_000),
        (0, 0, CacheWrites("provider", 2001), 200_000),
    ],
)
def test_what_is_written_unasked_costs_as_a_write(
    repeated: int, warm: int, writes: CacheWrites, cost: int, prices: ModelPrices
) -> None:
    request = make_request(input_tokens=2000, repeated_tokens=repeated, warm_tokens={"mid": warm} if warm else {})
    model = make_candidate("mid", prices=prices, cache_writes=writes)
    assert decide(request, make_snapshot(candidates=[model])).decision.expected_cost_pico_usd == cost


@pytest.mark.parametrize(("tier", "cost"), [(None, 200_000), ("priority", 360_000), ("unheard-of", None)])
def test_a_tier_that_is_always_asked_for_is_expected(tier: str | None, cost: int | None) -> None:
    prices = replace(FLAT, services={"priority": Service(multiplier=Fraction("1.8"))})
    model = make_candidate("mid", prices=prices, asked_tier=tier)
    choice = decide(make_request(input_tokens=2000), make_snapshot(candidates=[model]))
    assert choice.decision.expected_cost_pico_usd == cost


TOOL = {"type": "function", "function": {"name": "f" * 30}}
ASKED = [{"role": "system", "content": "s" * 400}, {"role": "user", "content": "hi"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "and?"}]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"messages": ASKED}, Reuse(104, 104, opens_tool_use=False)),
        ({"messages": ASKED[1:]}, Reuse(4, 0, opens_tool_use=False)),
        ({"messages": ASKED, "tools": [TOOL]}, Reuse(104, 123, opens_tool_use=True)),
        ({"messages": ASKED, "tools": [TOOL], "tool_choice": "auto"}, Reuse(104, 123, opens_tool_use=True)),
        ({"messages": ASKED, "tools": [TOOL], "tool_choice": "required"}, Reuse(104, 123, opens_tool_use=False)),
        ({"messages": ANSWERED, "tools": [TOOL]}, Reuse(104, 123, opens_tool_use=False)),
    ],
)
def test_what_a_chat_says_of_its_next_turn(body: dict[str, object], expected: Reuse) -> None:
    assert parse_request("chat.completions", json.dumps({"model": "m", **body}).encode()).reuse == expected
