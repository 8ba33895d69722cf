"""Gemini's usage in OpenAI's terms."""

import pytest
from msgspec.structs import replace

from backends.formats.gemini import parse_content_usage
from backends.formats.usage_wire import MalformedUsage
from backends.usage import Usage

Json = dict[str, object]
METADATA: Json = {
    "promptTokenCount": 10,
    "cachedContentTokenCount": 4,
    "toolUsePromptTokenCount": 3,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 20,
    "totalTokenCount": 38,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 7}, {"modality": "AUDIO", "tokenCount": 3}],
}
USAGE = Usage(13, 4, output_tokens=25, reasoning_tokens=20, audio_input_tokens=3)


def test_usage_puts_thoughts_inside_the_output() -> None:
    assert parse_content_usage(METADATA) == USAGE
    assert parse_content_usage({"promptTokenCount": 3}) == Usage(3)
    heard = METADATA | {"cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 2}]}
    assert parse_content_usage(heard) == replace(USAGE, cached_audio_tokens=2)
    heard = METADATA | {"cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 4}]}
    assert parse_content_usage(heard) == replace(USAGE, cached_audio_tokens=3)  # never more than was heard
    drawn = {"promptTokenCount": 3, "candidatesTokenCount": 1300}
    of_an_image = [{"modality": "TEXT", "tokenCount": 10}, {"modality": "IMAGE", "tokenCount": 1290}]
    usage = parse_content_usage(drawn | {"candidatesTokensDetails": of_an_image})
    assert usage == Usage(3, output_tokens=1300, image_output_tokens=1290)


def test_what_was_cached_is_input_if_vertex_counts_it_apart() -> None:
    """Of BerriAI/litellm#42093."""
    said = {"promptTokenCount": 5, "candidatesTokenCount": 20, "totalTokenCount": 25, "cachedContentTokenCount": 13710}
    assert parse_content_usage(said) == Usage(13715, 13710, output_tokens=20)
    heard = {"cacheTokensDetails": [{"modality": "AUDIO", "tokenCount": 13000}]}
    usage = Usage(13715, 13710, output_tokens=20, audio_input_tokens=13000, cached_audio_tokens=13000)
    assert parse_content_usage(said | heard) == usage


@pytest.mark.parametrize(
    ("said", "tier"),
    [
        ({"serviceTier": "priority"}, "priority"),
        ({"serviceTier": "SERVICE_TIER_FLEX"}, "flex"),
        ({"serviceTier": "standard"}, "standard"),
        ({"serviceTier": "unspecified"}, None),
        ({"trafficType": "ON_DEMAND_PRIORITY"}, "priority"),
        ({"trafficType": "ON_DEMAND"}, None),
        ({"trafficType": "PROVISIONED_THROUGHPUT"}, None),
        ({"serviceTier": 3}, None),
    ],
)
def test_the_tier_that_answered_sets_the_price(said: Json, tier: str | None) -> None:
    assert parse_content_usage({"promptTokenCount": 3, **said}) == Usage(3, service_tier=tier)


BAD: list[object] = [
    None,
    [],
    {},
    {"candidatesTokenCount": 3},
    {"promptTokenCount": -1},
    {"promptTokenCount": 2**63},
    {"promptTokenCount": "3"},
    {"promptTokenCount": 3, "promptTokensDetails": [{"modality": "AUDIO", "tokenCount": -3}]},
]


@pytest.mark.parametrize("wire", BAD)
def test_malformed_usage(wire: object) -> None:
    with pytest.raises(MalformedUsage):
        parse_content_usage(wire)
