import json
from datetime import date
from fractions import Fraction
from typing import Any

import pytest

from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service, Step, Window
from gateway.pricing.litellm_map import parse_litellm_map
from tests.unit.gateway.pricing.builders import at

AS_OF = date(2026, 11, 21)
PLAIN: dict[str, Any] = {
    "litellm_provider": "openai",
    "mode": "chat",
    "input_cost_per_token": 2.5e-06,
    "output_cost_per_token": 1e-05,
}


def parse(name: str = "large", **fields: Any) -> dict[str, dict[str, ModelPrices]]:
    return parse_litellm_map(json.dumps({name: {**PLAIN, **fields}}), as_of=AS_OF, source="a map")


def one(**fields: Any) -> ModelPrices:
    return parse(**fields)["openai"]["large"]


def test_every_class_is_read_exactly() -> None:
    prices = one(
        cache_read_input_token_cost=2.8e-09,
        cache_creation_input_token_cost=3e-06,
        cache_creation_input_token_cost_above_1hr=4e-06,
        output_cost_per_reasoning_token=5e-06,
        input_cost_per_audio_token=6e-06,
        output_cost_per_audio_token=7e-06,
        input_cost_per_image_token=8e-06,
        cache_read_input_audio_token_cost=9e-06,
    )
    assert one(cache_creation_input_token_cost_above_12hr=4e-06).rates.cache_write_1h == 4_000_000
    million = 1_000_000
    classes = (2_800, *(n * million for n in (3, 4, 5, 6, 7, 8)))
    assert prices.rates == Rates(2_500_000, 10 * million, *classes, cached_audio_input=9 * million)
    assert (prices.from_us, prices.source) == (at("2026-11-01"), "a map")


def test_a_step_keeps_the_base_price_of_what_it_leaves_out() -> None:
    prices = one(cache_read_input_token_cost=1e-06, input_cost_per_token_above_200k_tokens=5e-06)
    assert prices.ladder.steps == (Step(200_000, Rates(5_000_000, 10_000_000, 1_000_000)),)


@pytest.mark.parametrize(("image", "in_long_prompts"), [(2.5e-06, None), (2e-06, 2_000_000)])
def test_images_that_cost_what_the_input_does_also_do_in_long_prompts(
    image: float, in_long_prompts: int | None
) -> None:
    prices = one(input_cost_per_image_token=image, input_cost_per_token_above_200k_tokens=5e-06)
    assert [step.rates.image_input for step in prices.ladder.steps] == [in_long_prompts]


def test_a_step_of_xai_begins_at_its_threshold() -> None:
    """Its page bills the higher price once a prompt reaches 200,000 tokens; litellm's own function does the same."""
    (prices,) = parse(litellm_provider="xai", input_cost_per_token_above_200k_tokens=5e-06)["xai"].values()
    assert [step.above_input_tokens for step in prices.ladder.steps] == [199_999]


def test_a_service_is_a_multiplier_where_all_classes_agree_and_a_list_where_not() -> None:
    assert one(input_cost_per_token_batches=1.25e-06, output_cost_per_token_batches=5e-06).services == {
        "batch": Service(Fraction(1, 2))
    }
    assert one(input_cost_per_token_ultrafast=1.5e-05).services == {"ultrafast": Service(Fraction(6))}
    uneven = one(input_cost_per_token_flex=1.25e-06, output_cost_per_token_flex=1e-05).services["flex"]
    assert uneven == Service(ladder=Ladder(Rates(1_250_000, 10_000_000)))
    thirds = one(input_cost_per_token=3e-06, output_cost_per_token=3e-06, input_cost_per_token_priority=5e-06)
    assert thirds.services["priority"] == Service(ladder=Ladder(Rates(5_000_000, 5_000_000)))


def test_anthropics_surcharges_are_services_and_nobody_elses_are() -> None:
    terms = {"provider_specific_entry": {"us": 1.1, "fast": 2.0, "other": 9}}
    fields = {"mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_token": 5e-06, **terms}
    text = json.dumps(
        {"claude": {"litellm_provider": "anthropic", **fields}, "gpt": {"litellm_provider": "openai", **fields}}
    )
    found = parse_litellm_map(text, as_of=date(2026, 11, 22), source="a map")
    assert found["anthropic"]["claude"].services == {"fast": Service(Fraction(2)), "us": Service(Fraction(11, 10))}
    assert not found["openai"]["gpt"].services


def test_a_list_of_its_own_reprices_the_steps_too() -> None:
    prices = one(
        input_cost_per_token_above_200k_tokens=5e-06,
        input_cost_per_token_batches=1.25e-06,
        output_cost_per_token_batches=1e-05,
    )
    ladder = prices.services["batch"].ladder
    assert ladder is not None
    assert ladder.steps == (Step(200_000, Rates(2_500_000, 10_000_000)),)


def test_a_zero_beside_a_price_is_not_billed_apart() -> None:
    assert one(cache_read_input_token_cost=0.0).rates.cached_input is None


def test_off_peak_hours() -> None:
    windows = [
        {"hours_utc": ["00:00-01:30", "10:00-00:00"], "weekdays": [1]},
        {"hours_utc": "00:00-00:00", "weekdays": [7]},
    ]
    off_peak = one(off_peak_pricing={"input_cost_per_token": 1e-06, "windows": windows}).off_peak
    assert off_peak is not None
    assert off_peak.ladder == Ladder(Rates(1_000_000, 10_000_000))
    assert off_peak.windows == (Window((1,), 0, 90), Window((1,), 600, 1440), Window((7,), 0, 1440))


@pytest.mark.parametrize(
    "fields",
    [
        {"deprecation_date": "2026-11-21"},
        {"mode": "video_generation"},
        {"litellm_provider": "bedrock"},
        {"input_cost_per_token": 0.0, "output_cost_per_token": 0},
    ],
)
def test_what_is_retired_free_or_elsewhere_is_left_out(fields: dict[str, Any]) -> None:
    assert parse(**fields) == {}


@pytest.mark.parametrize(
    ("mode", "field", "usd", "name", "pico_usd"),
    [
        ("image_generation", "output_cost_per_image", 0.02, "per_image_pico_usd", 2 * 10**10),
        ("image_generation", "input_cost_per_image", 0.02, "per_image_pico_usd", 2 * 10**10),
        ("audio_transcription", "input_cost_per_second", 0.0001, "per_audio_second_pico_usd", 10**8),
        ("audio_speech", "input_cost_per_character", 1.5e-05, "per_character_pico_usd", 15 * 10**6),
        ("rerank", "input_cost_per_query", 0.002, "per_search_unit_pico_usd", 2 * 10**9),
    ],
)
def test_what_is_billed_by_the_piece(mode: str, field: str, usd: float, name: str, pico_usd: int) -> None:
    nothing: dict[str, Any] = {"input_cost_per_token": 0, "output_cost_per_token": 0}
    told: dict[str, Any] = {field: usd}
    prices = one(mode=mode, **nothing, **told)
    assert getattr(prices, name) == pico_usd
    assert prices.rates == Rates(0, 0)
    by_tokens = one(mode=mode, **told)  # token prices decide: the other figure is only an estimate from them
    assert (getattr(by_tokens, name), by_tokens.rates) == (None, Rates(2_500_000, 10_000_000))
    assert parse(mode=mode, **nothing) == {}
    elsewhere = parse(mode=mode, supported_endpoints=["/v1/realtime"], **nothing, **told)
    assert bool(elsewhere) is (mode == "rerank")  # for whose endpoint the map has no field


def test_of_those_who_rank_nothing_else_is_taken() -> None:
    ranks = parse(litellm_provider="cohere", mode="rerank")
    assert list(ranks) == ["cohere"]
    assert parse(litellm_provider="cohere", mode="embedding") == {}
    assert "voyage" in parse("voyage/large", litellm_provider="voyage", mode="rerank")


def test_an_image_token_has_a_price_of_its_own() -> None:
    assert one(output_cost_per_image_token=3e-05).rates == Rates(2_500_000, 10_000_000, image_output=30_000_000)
    fields = {"litellm_provider": "openai", "mode": "image_generation", "input_cost_per_token": 5e-06}
    drawing = {"draws": {**fields, "output_cost_per_image_token": 3e-05}}
    rates = parse_litellm_map(json.dumps(drawing), as_of=AS_OF, source="a map")["openai"]["draws"].rates
    assert rates == Rates(5_000_000, 30_000_000, image_output=30_000_000)


def test_moderation_is_free_where_its_provider_says_so() -> None:
    free = one(mode="moderation", input_cost_per_token=0.0, output_cost_per_token=0.0)
    assert free.rates == Rates(0, 0)
    unknown = {"litellm_provider": "openai", "mode": "moderation"}
    assert parse_litellm_map(json.dumps({"m": unknown}), as_of=AS_OF, source="a map") == {}


def test_images_whose_price_hangs_on_their_size_have_none() -> None:
    flat = {"litellm_provider": "xai", "mode": "image_generation", "input_cost_per_image": 0.06}
    by_size = {"low/1024-x-1024/imagine": {**flat, "input_cost_per_image": 0.04}, "xai/imagine": flat}
    assert parse_litellm_map(json.dumps(by_size), as_of=AS_OF, source="a map") == {}
    assert "xai" in parse_litellm_map(json.dumps({"xai/imagine": flat}), as_of=AS_OF, source="a map")


def test_images_that_fireworks_bills_by_their_steps_have_no_price() -> None:
    fields = {"mode": "image_generation", "litellm_provider": "fireworks_ai"}
    assert parse("fireworks_ai/accounts/fireworks/models/flux", **fields) == {}


@pytest.mark.parametrize("name", ["ft:large", "together-ai-up-to-4b", "fireworks_ai/short"])
def test_names_that_cannot_be_called_are_left_out(name: str) -> None:
    assert parse(name) == {}


def test_the_entry_under_the_providers_own_prefix_wins() -> None:
    entries = {
        "deepseek/chat": {**PLAIN, "litellm_provider": "deepseek", "input_cost_per_token": 1e-06},
        "chat": {**PLAIN, "litellm_provider": "deepseek"},
    }
    found = parse_litellm_map(json.dumps(entries), as_of=AS_OF, source="a map")
    assert found["deepseek"]["chat"].rates.input == 1_000_000
