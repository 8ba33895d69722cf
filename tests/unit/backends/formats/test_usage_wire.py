"""Usage in each provider's format; what is none is in test_malformed_usage.py."""

import math

import pytest

from backends.formats.usage_wire import parse_openai_usage, parse_timings
from backends.usage import EngineTimings, Usage

OPENAI: dict[str, object] = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 64, "audio_tokens": 3},
    "completion_tokens_details": {"reasoning_tokens": 20, "audio_tokens": 2, "rejected_prediction_tokens": 0},
}
PLAIN = Usage(100, 64, output_tokens=50, reasoning_tokens=20, audio_input_tokens=3, audio_output_tokens=2)


def bare(prompt: int, completion: int, total: int) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


WORDINGS: list[tuple[str, dict[str, object], Usage]] = [
    ("openai", OPENAI, PLAIN),
    (
        "null details",
        OPENAI | {"prompt_tokens_details": None, "completion_tokens_details": None},
        Usage(100, output_tokens=50),
    ),
    (
        "a proxy of Anthropic's, with cache writes for a time that has no price",
        OPENAI | {"cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_12h_input_tokens": 9}},
        Usage(
            *(100, 64, 0, 9),
            output_tokens=50,
            reasoning_tokens=20,
            audio_input_tokens=3,
            audio_output_tokens=2,
            service_tier="ephemeral_12h_input_tokens",
        ),
    ),
    (
        "deepseek",
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_cache_hit_tokens": 90,
            "prompt_cache_miss_tokens": 10,
        },
        Usage(100, 90, output_tokens=5),
    ),
    *(
        (
            "dashscope, asked to cache",
            {
                "prompt_tokens": 18628,
                "completion_tokens": 344,
                "total_tokens": 18972,
                "prompt_tokens_details": {
                    "text_tokens": 18628,
                    "cache_creation_input_tokens": 18613,
                    "cache_type": "ephemeral",
                    "cached_tokens": 0,
                    **split,
                },
            },
            Usage(18628, 0, 18613, output_tokens=344),
        )
        for split in ({}, {"cache_creation": {"ephemeral_5m_input_tokens": 18613}})
    ),
    *(
        ("dashscope, that searched", bare(10, 4, 14) | told, searched)
        for told, searched in (
            ({"plugins": {"search": {"count": 2, "strategy": "agent"}}}, Usage(10, output_tokens=4, web_searches=2)),
            ({"plugins": ["search"]}, Usage(10, output_tokens=4)),
            (
                {"x_tools": {"web_search": {"count": 1}, "file_search": {"count": 3}}},
                Usage(10, output_tokens=4, web_searches=1, file_searches=3),
            ),
        )
    ),
    (
        "groq",
        {"queue_time": 0.02, "prompt_tokens": 9, "prompt_time": 0.001, "completion_tokens": 7, "total_tokens": 16},
        Usage(9, output_tokens=7),
    ),
    (
        "vllm, with --enable-prompt-tokens-details",
        {
            "prompt_tokens": 100,
            "total_tokens": 107,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 96},
        },
        Usage(100, 96, output_tokens=7),
    ),
    (
        "sglang, with --enable-cache-report",
        {
            "prompt_tokens": 100,
            "total_tokens": 107,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 64},
            "reasoning_tokens": 3,
        },
        Usage(100, 64, output_tokens=7, reasoning_tokens=3),
    ),
    ("mistral", {"prompt_tokens": 9, "total_tokens": 16, "completion_tokens": 7}, Usage(9, output_tokens=7)),
    (
        "openrouter",
        {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "total_tokens": 107,
            "cost": 0.0012,
            "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 20, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "image_tokens": 5},
        },
        Usage(100, 30, 20, output_tokens=7, image_output_tokens=5),
    ),
    (
        "moonshot",
        {"prompt_tokens": 8, "completion_tokens": 2, "total_tokens": 10, "cached_tokens": 4},
        Usage(8, 4, output_tokens=2),
    ),
    (
        "anthropic through a proxy",
        {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "total_tokens": 107,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        },
        Usage(100, 40, 10, 20, output_tokens=7),
    ),
    (
        "anthropic through a proxy that keeps the split of a stream's beginning",
        {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "total_tokens": 107,
            "cache_creation_input_tokens": 90,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
        },
        Usage(100, 0, 70, 20, output_tokens=7),
    ),
    (
        "anthropic and bedrock through litellm, kept for an hour",
        {
            "prompt_tokens": 1005,
            "completion_tokens": 9,
            "total_tokens": 1014,
            "prompt_tokens_details": {
                "cache_write_tokens": 1000,
                "cached_tokens": 0,
                "cache_creation_tokens": 1000,
                "cache_creation_token_details": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000},
            },
            "cache_creation_input_tokens": 1000,
            "cache_read_input_tokens": 0,
        },
        Usage(1005, 0, 0, 1000, output_tokens=9),
    ),
    (
        "xai: reasoning beside the completion",
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "total_tokens": 115,
            "completion_tokens_details": {"reasoning_tokens": 100},
        },
        Usage(10, output_tokens=105, reasoning_tokens=100),
    ),
    (
        "gemini's compatible endpoint: thoughts only in the total",
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 75},
        Usage(10, output_tokens=65),
    ),
    *(
        (
            f"bedrock through an older litellm: {fresh} tokens beside those written to the cache",
            {
                "prompt_tokens": fresh + 100,
                "completion_tokens": 19,
                "total_tokens": fresh + 100 + 4993 + 19,
                "prompt_tokens_details": {"cached_tokens": 100},
                "cache_creation_input_tokens": 4993,
                "cache_read_input_tokens": 100,
            },
            Usage(fresh + 100 + 4993, 100, 4993, output_tokens=19),
        )
        for fresh in (2, 6000)
    ),
    (
        "gemini through litellm, after a search: what was found is only in the total, and free",
        {
            "prompt_tokens": 151,
            "completion_tokens": 1089,
            "total_tokens": 19569,
            "prompt_tokens_details": {"text_tokens": 151, "tool_use_tokens": 18329},
        },
        Usage(151, output_tokens=1089),
    ),
    (
        "gemini through litellm, after reading a page: it is input",
        {
            "prompt_tokens": 18480,
            "completion_tokens": 1089,
            "total_tokens": 19569,
            "prompt_tokens_details": {"text_tokens": 151, "tool_use_tokens": 18329},
        },
        Usage(18480, output_tokens=1089),
    ),
    (
        "kimi at baseten: one token more of reasoning, and in the total",
        {
            "prompt_tokens": 951,
            "completion_tokens": 6000,
            "total_tokens": 6952,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 6001},
        },
        Usage(951, 60, output_tokens=6001, reasoning_tokens=6001),
    ),
    (
        "openrouter: more reasoning than the completion that it is part of",
        {
            "prompt_tokens": 900,
            "completion_tokens": 293,
            "total_tokens": 1193,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 321},
        },
        Usage(900, 64, output_tokens=321, reasoning_tokens=321, is_estimated=True),
    ),
    (
        "mistral: audio beside the prompt",
        bare(9, 248, 632) | {"prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 375}},
        Usage(384, output_tokens=248, audio_input_tokens=375),
    ),
    (
        "grok at azure: what was cached beside the prompt, and beside the total",
        bare(24, 2, 26) | {"prompt_tokens_details": {"cached_tokens": 161, "text_tokens": 24}},
        Usage(185, 161, output_tokens=2),
    ),
    (
        "gemini through vercel's gateway: reasoning beside the completion, and beside the total",
        bare(61, 10, 71) | {"completion_tokens_details": {"reasoning_tokens": 96}, "market_cost": 0.0002833},
        Usage(61, output_tokens=106, reasoning_tokens=96),
    ),
    (
        "vercel's gateway, as BerriAI/litellm#39088 recorded it",
        bare(9520, 16, 9536)
        | {"prompt_tokens_details": {"cached_tokens": 9519, "audio_tokens": 0, "video_tokens": 0}}
        | {"cost": 0.00254674, "market_cost": 0.00254674, "gateway_cost": 0.00254674},
        Usage(9520, 9519, output_tokens=16, charged_pico_usd=2_546_740_000),
    ),
    (
        "the same, with a surcharge for zero data retention",
        bare(85, 16, 101)
        | {"cost": 1.638e-5, "gateway_cost": 0.00011638, "surcharge_cost": 0.0001, "zero_data_retention_cost": 0.0001},
        Usage(85, output_tokens=16, charged_pico_usd=116_380_000),
    ),
    (
        "the same, with a key of one's own at the provider",
        bare(85, 16, 101) | {"cost": 0, "market_cost": 1.638e-5, "gateway_cost": 0},
        Usage(85, output_tokens=16),
    ),
    (
        "openrouter: gemini reads what it has just written to its cache",
        bare(2168, 100, 2268)
        | {"prompt_tokens_details": {"cached_tokens": 2161, "cache_write_tokens": 2161}}
        | {"cost": 0.000497, "is_byok": False},
        Usage(2168, 2161, 7, output_tokens=100, charged_pico_usd=497_000_000),
    ),
    ("embeddings", {"prompt_tokens": 8, "total_tokens": 8}, Usage(8)),
    (
        "responses",
        {
            "input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 80},
            "total_tokens": 123,
        },
        Usage(36, 4, output_tokens=87, reasoning_tokens=80),
    ),
    (
        "responses: some of the prompt is cached for 12 hours",
        {
            "input_tokens": 3000,
            "input_tokens_details": {
                "cached_tokens": 500,
                "cache_write_tokens": 2400,
                "cache_write_tokens_details": {"ttl_30m_tokens": 400, "ttl_12h_tokens": 2000},
            },
            "output_tokens": 7,
        },
        Usage(3000, 500, 400, 2000, output_tokens=7),
    ),
    (
        "openai through litellm: some of the prompt is cached for 12 hours",
        {
            "prompt_tokens": 3000,
            "completion_tokens": 7,
            "total_tokens": 3007,
            "prompt_tokens_details": {
                "cache_write_tokens": 2400,
                "cache_creation_token_details": {
                    "ephemeral_30m_input_tokens": 400,
                    "ephemeral_12h_input_tokens": 2000,
                },
            },
        },
        Usage(3000, 0, 400, 2000, output_tokens=7),
    ),
    ("whole floats", {"prompt_tokens": 8.0, "completion_tokens": 2.0}, Usage(8, output_tokens=2)),
]


@pytest.mark.parametrize(("who", "wire", "expected"), WORDINGS, ids=[who for who, _, _ in WORDINGS])
def test_wordings(who: str, wire: dict[str, object], expected: Usage) -> None:
    assert parse_openai_usage(wire) == expected


def test_service_tier_is_the_answers() -> None:
    assert parse_openai_usage(OPENAI, service_tier="priority").service_tier == "priority"
    assert parse_openai_usage(OPENAI, service_tier="").service_tier is None
    assert parse_openai_usage(OPENAI, service_tier=7).service_tier is None
    through_litellm = OPENAI | {"speed": "fast", "inference_geo": "us", "service_tier": "standard"}
    assert parse_openai_usage(through_litellm).service_tier == "fast+us"


def test_timings() -> None:
    whole = {
        "gpu_seconds": 0.5,
        "queue_seconds": 0,
        "prefill_tokens_per_second": 900,
        "decode_tokens_per_second": None,
        "mean_batch_size": 2.5,
        "time_to_first_token_seconds": 0.25,
    }
    assert parse_timings(whole) == EngineTimings(0.5, 0.0, 900.0, None, 0.25)
    for spoiled in (
        {"gpu_seconds": math.nan},
        {"gpu_seconds": -1},
        {"queue_seconds": "0"},
        {"gpu_seconds": 10**400},
        {"queue_seconds": True},
    ):
        assert parse_timings(whole | spoiled) is None
    spoiled = whole | {"prefill_tokens_per_second": math.inf}
    assert parse_timings(spoiled) == EngineTimings(0.5, 0.0, None, None, 0.25)
    assert parse_timings([]) is None
    assert parse_timings({}) is None
