"""Requests for images, speech, transcripts and moderation go to the cheapest model of that specialty only."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from backends.usage import Units
from gateway.errors import NoCapableModel
from gateway.pricing.catalogue import Service
from gateway.routing.decide import decide
from gateway.routing.snapshot import Snapshot
from tests.builders import make_candidate, make_local, make_prices, make_request, make_snapshot

RULES = "version: 1\nrules: [{name: default, choose: {from: any, by: expected_cost}}]\n"
FREE = make_prices(0, 0)
DRAWS = frozenset({"images"})


def snapshot() -> Snapshot:
    return make_snapshot(
        RULES,
        [
            make_local(),
            make_candidate("writes"),
            make_candidate("by-token", supports=DRAWS, prices=make_prices(5, 30, image_output=40_000_000)),
            make_candidate("by-the-piece", supports=DRAWS, prices=replace(FREE, per_image_pico_usd=5 * 10**10)),
            make_candidate("unpriced", supports=DRAWS, prices=None),
            make_candidate("listens", supports=frozenset({"transcription"}), prices=FREE),
        ],
    )


def drawing(tokens: float, **more: Any) -> str:
    """The model chosen for an image of this many tokens."""
    asked = make_request(
        operation="images.generations",
        quality={},
        units=Units(images=1),
        output_tokens={"by-token": tokens, "by-the-piece": tokens},
        **more,
    )
    return decide(asked, snapshot()).decision.model


def test_the_cheapest_that_draws_is_asked() -> None:
    """At $40 per million tokens, 1,000 tokens are 4 cents; the other model takes 5 cents per image."""
    assert drawing(1000) == "by-token"
    assert drawing(1500) == "by-the-piece"


@pytest.mark.parametrize("operation", ["images.edits", "images.generations"])
def test_only_models_made_for_it_are_candidates(operation: str) -> None:
    choice = decide(make_request(operation=operation, quality={}, units=Units(images=1)), snapshot())
    assert {ranked.candidate.name for ranked in choice.weighed} == {"by-token", "by-the-piece", "unpriced"}


def test_a_rule_may_be_for_one_endpoint() -> None:
    rules = """
version: 1
rules:
  - {name: pictures, when: {operation: [images.generations]}, choose: {from: [by-token]}}
  - {name: default, choose: {from: any}}
"""
    found = make_snapshot(rules, list(snapshot().candidates.values()))
    asked = make_request(operation="images.generations", quality={}, units=Units(images=1))
    assert decide(asked, found).decision.rule == "pictures"


def test_whoever_has_none_is_told_what_to_write() -> None:
    with pytest.raises(NoCapableModel, match=r"supports: \[speech\]"):
        decide(make_request(operation="audio.speech", quality={}, units=Units(characters=3)), snapshot())


def test_chats_never_go_to_a_model_that_draws() -> None:
    choice = decide(make_request(quality={}), snapshot())
    assert {ranked.candidate.name for ranked in choice.weighed} == {"local", "writes"}
    with pytest.raises(NoCapableModel, match="it is for images only"):
        decide(make_request(requested_model="by-token"), snapshot())


@pytest.mark.parametrize("terms", [{"discount": Fraction(1, 10)}, {"services": {"flex": Service()}}])
def test_nor_to_one_that_bills_the_second_whatever_else_its_price_says(terms: dict[str, Any]) -> None:
    prices = replace(FREE, per_audio_second_pico_usd=10**8, **terms)
    listens = make_candidate(
        "listens",
        supports=frozenset({"transcription"}),
        prices=prices,
        asked_tier="flex" if "services" in terms else None,
    )
    with pytest.raises(NoCapableModel, match="it is for"):
        decide(make_request(requested_model="listens"), make_snapshot(RULES, [make_local(), listens]))
