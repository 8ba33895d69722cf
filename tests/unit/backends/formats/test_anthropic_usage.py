"""Anthropic's usage in our token classes, or rejected as malformed."""

import json

import pytest

from backends.formats.anthropic import AnthropicStreamReader, note_usage, parse_messages_usage, read_message
from backends.formats.anthropic_messages import NativeMessagesReader, read_native_message
from backends.formats.usage_wire import MalformedUsage
from backends.usage import Usage

Json = dict[str, object]
WRITTEN: Json = {"cache_creation_input_tokens": 50}
TWELVE_HOURS: Json = {"ephemeral_5m_input_tokens": 20, "ephemeral_12h_input_tokens": 30}
USAGES: list[tuple[Json, Usage]] = [
    ({"input_tokens": 10, "output_tokens": 5}, Usage(10, output_tokens=5)),
    (
        {
            "input_tokens": 10,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 30},
            "output_tokens": 5,
            "output_tokens_details": {"thinking_tokens": 4},
            "service_tier": "priority",
        },
        Usage(160, 100, 20, 30, 5, 4, service_tier="priority"),
    ),
    (  # a stream with searches: the split covers only writes before the first search
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 30},
            "output_tokens": 5,
        },
        Usage(51, 0, 0, 50, output_tokens=5),
    ),
    (
        {
            "input_tokens": 1,
            "cache_creation_input_tokens": 50,
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 30},
            "output_tokens": 5,
        },
        Usage(51, 0, 20, 30, output_tokens=5),
    ),
    ({"input_tokens": 1, "cache_creation_input_tokens": 50, "output_tokens": 5}, Usage(51, 0, 50, output_tokens=5)),
    (
        {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1}},
        Usage(1, output_tokens=2, web_searches=3),
    ),
    (
        {"input_tokens": 1, "cache_creation_input_tokens": None, "cache_creation": None, "output_tokens": 0},
        Usage(1),
    ),
    (
        {
            "input_tokens": 220,
            "output_tokens": 8,
            "iterations": [
                {
                    "type": "compaction",
                    "input_tokens": 100,
                    "cache_read_input_tokens": 4000,
                    "cache_creation_input_tokens": 900,
                    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 900},
                    "output_tokens": 125,
                },
                {"type": "message", "input_tokens": 220, "output_tokens": 8},
            ],
        },
        Usage(5220, 4000, 0, 900, output_tokens=133),
    ),
    (
        {
            "input_tokens": 30,
            "output_tokens": 9,
            "iterations": [
                {"type": "message", "input_tokens": 10, "output_tokens": 5},
                {"type": "advisor_message", "model": "another", "input_tokens": 25, "output_tokens": 7},
                {"type": "message", "input_tokens": 20, "output_tokens": 4},
            ],
        },
        Usage(30, output_tokens=9, other_tool_calls=1),
    ),
    (
        {
            "input_tokens": 12,
            "output_tokens": 4,
            "iterations": [{"type": "fallback_message", "model": "another", "input_tokens": 12, "output_tokens": 4}],
        },
        Usage(12, output_tokens=4, other_tool_calls=1),
    ),
    (
        {
            "input_tokens": 1,
            "output_tokens": 2,
            "iterations": [
                {"type": "message", "input_tokens": 1, "output_tokens": 2},
                {"type": "of_next_year", "input_tokens": 9, "output_tokens": 9},
            ],
        },
        Usage(1, output_tokens=2, other_tool_calls=1),
    ),
    *(  # OpenRouter's, of September 2026: beside its own charge the second repeats what the model's host charges
        ({"input_tokens": 8, "output_tokens": 16, **said}, Usage(8, output_tokens=16, charged_pico_usd=pico_usd))
        for said, pico_usd in (
            ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.000088}}, 88_000_000),
            ({"cost": 2.53e-5, "is_byok": False, "cost_details": {"upstream_inference_cost": 2.53e-5}}, 25_300_000),
        )
    ),
    ({"input_tokens": 1, "output_tokens": 2, "iterations": None}, Usage(1, output_tokens=2)),
    ({"input_tokens": 1, "output_tokens": 2, "iterations": [{"type": []}]}, Usage(1, output_tokens=2)),
    *(  # kept for a time that has no price: no tier of that name has one
        (
            {"input_tokens": 1, "output_tokens": 2, **said, **part},
            Usage(51 + more, 0, 50, output_tokens=2 + more, service_tier=tier),
        )
        for said, part, more, tier in (
            (WRITTEN, {"cache_creation": TWELVE_HOURS}, 0, "ephemeral_12h_input_tokens"),
            (
                {**WRITTEN, "speed": "fast"},
                {
                    "iterations": [
                        {"type": "compaction", "input_tokens": 1, "output_tokens": 1, "cache_creation": TWELVE_HOURS}
                    ]
                },
                1,
                "fast+ephemeral_12h_input_tokens",
            ),
        )
    ),
    *(
        ({"input_tokens": 1, "output_tokens": 2, **said}, Usage(1, output_tokens=2, service_tier=tier))
        for said, tier in (
            ({"speed": "standard", "inference_geo": "not_available", "service_tier": "standard"}, "standard"),
            ({"speed": "fast", "inference_geo": "global", "service_tier": "standard"}, "fast"),
            ({"speed": None, "inference_geo": "us"}, "us"),
            ({"speed": "fast", "inference_geo": "us"}, "fast+us"),
            ({"speed": {"a": 1}, "inference_geo": ["us"]}, None),
            ({"cache_creation": {"ephemeral_12h_input_tokens": 0}}, None),
        )
    ),
]


@pytest.mark.parametrize(("wire", "expected"), USAGES)
def test_usage_is_normalised_so_that_cached_lies_inside_input(wire: Json, expected: Usage) -> None:
    assert parse_messages_usage(wire) == expected


BAD: list[object] = [
    {"input_tokens": 1, "output_tokens": 1, "server_tool_use": {"web_search_requests": -1}},
    None,
    [],
    {},
    {"input_tokens": 1},
    {"input_tokens": 1, "output_tokens": 1, "iterations": [{"type": "compaction", "input_tokens": -1}]},
    {"output_tokens": 1},
    {"input_tokens": -1, "output_tokens": 1},
    {"input_tokens": 1, "output_tokens": 2**63},
    {"input_tokens": "1", "output_tokens": 1},
    {"input_tokens": 1, "output_tokens": 1, "cache_creation": {"ephemeral_1h_input_tokens": 3}},
    {"input_tokens": 1, "output_tokens": 1, "output_tokens_details": {"thinking_tokens": 3}},
    {"input_tokens": 1, "output_tokens": 1, "iterations": [{}] * 1_001},
    {"input_tokens": 1, "output_tokens": 1, "cost": -0.1, "is_byok": False},
]


@pytest.mark.parametrize("wire", BAD)
def test_malformed_usage(wire: object) -> None:
    with pytest.raises(MalformedUsage):
        parse_messages_usage(wire)


def test_of_a_streams_usage_what_is_read_is_kept_and_nothing_else() -> None:
    so_far: Json = {}
    charged: Json = {"cost": 0.000114, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.000114}}
    note_usage(so_far, {"input_tokens": 1, "output_tokens": None, "x" * 99: 1})
    note_usage(so_far, [])
    note_usage(so_far, charged)
    assert so_far == {"input_tokens": 1} | charged


HOUR: Json = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 30}
NEVER: Json = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ({"input_tokens": 15}, {"input_tokens": 0}, Usage(15, output_tokens=9)),
        ({"input_tokens": 0}, {"input_tokens": 15}, Usage(15, output_tokens=9)),
        ({"input_tokens": 15}, {"input_tokens": 0, "cache_read_input_tokens": 15}, Usage(15, 15, output_tokens=9)),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 30, "cache_creation": HOUR},
            {"input_tokens": 0, "cache_creation_input_tokens": 0, "cache_creation": NEVER},
            Usage(35, 0, 0, 30, output_tokens=9),
        ),
    ],
)
def test_an_event_that_counts_no_input_takes_back_none(first: Json, last: Json, expected: Usage) -> None:
    so_far: Json = {}
    note_usage(so_far, first | {"output_tokens": 1})
    note_usage(so_far, last | {"output_tokens": 9})
    assert parse_messages_usage(so_far) == expected


TEXT: Json = {"type": "text", "text": ""}


@pytest.mark.parametrize(
    ("gateway", "pico_usd"),
    [
        ({"cost": "0.00001515"}, 15_150_000),
        ({"cost": "0.000034", "marketCost": "0.000034", "gatewayCost": "0.000134"}, 134_000_000),
        ({"cost": "0", "marketCost": "0.000034", "gatewayCost": "0"}, None),  # with the caller's own key at Anthropic
        ({"routing": {}}, None),
    ],
)
def test_vercels_gateway_says_beside_the_usage_what_it_charges_and_what_was_cached(
    gateway: Json, pico_usd: int | None
) -> None:
    own: Json = {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 7}
    said: Json = {
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "provider_metadata": {"anthropic": {"usage": own}, "gateway": gateway},
    }
    whole = json.dumps({"type": "message", "content": [TEXT]} | said).encode()
    events: list[Json] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 0, "output_tokens": 0}}},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}} | said,
        {"type": "message_stop"},
    ]
    readers = AnthropicStreamReader("b", wants_usage_chunk=True, created=0), NativeMessagesReader("b")
    told = [chunk for reader in readers for event in events for chunk in reader.read(json.dumps(event).encode())]
    told += [read_message(whole, backend="b", created=0), read_native_message(whole, backend="b")]
    expected = Usage(20, 7, 3, output_tokens=5, charged_pico_usd=pico_usd)
    assert [chunk.usage for chunk in told if chunk.usage is not None] == [expected] * 5


@pytest.mark.parametrize(
    ("said", "charge", "expected"),
    [
        ([], {}, Usage()),
        ([], {"cost": 0.0005, "is_byok": False}, Usage(charged_pico_usd=500_000_000)),
        ([TEXT], {}, Usage(106, output_tokens=1)),
    ],
)
def test_who_is_refused_before_any_output_is_not_billed(said: list[Json], charge: Json, expected: Usage) -> None:
    """The counts are those of Amazon's page on fallback credit; a router may charge nevertheless, and says so."""
    refused: Json = {"stop_reason": "refusal", "usage": {"input_tokens": 106, "output_tokens": 1} | charge}
    whole = json.dumps({"type": "message", "content": said} | refused).encode()
    events: list[Json] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 106, "output_tokens": 0}}},
        *({"type": "content_block_start", "index": 0, "content_block": block} for block in said),
        {"type": "message_delta", "delta": refused, "usage": refused["usage"]},
        {"type": "message_stop"},
    ]
    readers = AnthropicStreamReader("b", wants_usage_chunk=True, created=0), NativeMessagesReader("b")
    told = [chunk for reader in readers for event in events for chunk in reader.read(json.dumps(event).encode())]
    told += [read_message(whole, backend="b", created=0), read_native_message(whole, backend="b")]
    assert [chunk.usage for chunk in told if chunk.usage is not None] == [expected] * 5
