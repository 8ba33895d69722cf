"""What OpenAI, OpenRouter, xAI, Perplexity and Vercel say that they charge, and what is no charge."""

import math

import pytest

from backends.formats.responses import usage_of
from backends.formats.usage_wire import MalformedUsage, parse_openai_usage
from backends.usage import Usage

Json = dict[str, object]
TOKENS: Json = {"prompt_tokens": 7970, "completion_tokens": 1931, "total_tokens": 9901}
ELSEWHERE: Json = {"cost_details": {"upstream_inference_cost": 0.039112}}


@pytest.mark.parametrize(
    ("said", "pico_usd"),
    [
        ({"cost": 0.044112, "is_byok": False, **ELSEWHERE}, 44_112_000_000),  # its web plugin ran
        ({"cost": 0, "is_byok": False}, 0),
        ({"cost": 0.0019, "is_byok": True, **ELSEWHERE}, 41_012_000_000),  # with the caller's own key at the provider
        ({"cost": 0.0019, "is_byok": True}, None),
        ({"cost": None, "is_byok": False}, None),
        ({"cost": 0.0019}, None),  # litellm's estimate
        ({"cost": {"total_cost": 0.0019}}, None),
        ({"cost": {"total_cost": 0.0174, "tool_calls_cost": 0.005, "currency": "USD"}}, 17_400_000_000),
        ({"cost": {"total_cost": 0.0174, "currency": "EUR"}}, None),
        ({"cost_in_usd_ticks": 123_456_789}, 12_345_678_900),
    ],
)
def test_what_is_charged_is_found(said: Json, pico_usd: int | None) -> None:
    assert parse_openai_usage(TOKENS | said) == Usage(7970, output_tokens=1931, charged_pico_usd=pico_usd)


def test_xai_charges_for_searches_of_x_and_for_images() -> None:
    searched: Json = {
        "input_tokens": 21365,
        "input_tokens_details": {"cached_tokens": 10496},
        "output_tokens": 3646,
        "cost_in_usd_ticks": 648004500,
        "server_side_tool_usage_details": {"x_search_calls": 8},
    }
    expected = Usage(21365, 10496, output_tokens=3646, other_tool_calls=8, charged_pico_usd=64_800_450_000)
    assert parse_openai_usage(searched) == expected
    assert parse_openai_usage({"cost_in_usd_ticks": 700_000_000}) == Usage(charged_pico_usd=70_000_000_000)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"billing": {"payer": "openai"}}, Usage(12, output_tokens=3, charged_pico_usd=0)),
        ({"billing": {"payer": "developer"}}, Usage(12, output_tokens=3)),
        ({"billing": None}, Usage(12, output_tokens=3)),
        (
            {"billing": {"payer": "openai"}, "output": [{"type": "file_search_call"}]},
            Usage(12, output_tokens=3, file_searches=1, is_estimated=True),
        ),
    ],
)
def test_openai_says_what_it_pays_for_itself(said: Json, expected: Usage) -> None:
    assert usage_of({"usage": {"input_tokens": 12, "output_tokens": 3}} | said) == (expected, False)


@pytest.mark.parametrize("where", ["provider_metadata", "providerMetadata"])
def test_vercels_gateway_says_beside_a_responses_usage_what_it_charges(where: str) -> None:
    usage: Json = {"input_tokens": 3691, "output_tokens": 229}
    charge: Json = {"cost": "0.0091175", "marketCost": "0.0091175", "generationId": "gen_1"}
    said: Json = {"usage": usage, where: {"openai": {"usage": usage}, "gateway": charge}}
    assert usage_of(said) == (Usage(3691, output_tokens=229, charged_pico_usd=9_117_500_000), False)
    assert usage_of(said | {where: {"gateway": charge | {"cost": "some"}}}) == (None, True)


@pytest.mark.parametrize(
    "said",
    [
        *({"is_byok": False, "cost": cost} for cost in (-0.1, "0.1", True, 10_001, math.nan, math.inf)),
        {"is_byok": True, "cost": 0.1, "cost_details": []},
        {"cost_in_usd_ticks": -1},
    ],
)
def test_no_amount_is_malformed(said: Json) -> None:
    with pytest.raises(MalformedUsage):
        parse_openai_usage(TOKENS | said)
