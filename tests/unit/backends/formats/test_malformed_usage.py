"""Whatever is no usage is refused as a whole, whoever sent it."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from backends.formats.usage_wire import MAX_TOKENS, MalformedUsage, parse_openai_usage

BAD_COUNTS = [-1, 2**63, 2**64, 1.5, math.nan, math.inf, -math.inf, "12", "", True, [], {}, MAX_TOKENS + 1]


@pytest.mark.parametrize("bad", BAD_COUNTS)
@pytest.mark.parametrize("field", ["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"])
def test_a_count_that_is_none_spoils_the_whole(field: str, bad: object) -> None:
    with pytest.raises(MalformedUsage, match=field):
        parse_openai_usage({"prompt_tokens": 1, "completion_tokens": 1} | {field: bad})


BAD_USAGES: list[object] = [
    None,
    [],
    "12",
    3,
    {},
    {"completion_tokens": 3},
    {"prompt_tokens": 3, "prompt_tokens_details": [1]},
    {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": -1}},
    {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}},
    {"prompt_tokens": 3, "prompt_cache_hit_tokens": 4},
    {"prompt_tokens": 3, "cached_tokens": 2, "cache_creation_input_tokens": 2},
    {"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"audio_tokens": 3}},
    {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "completion_tokens_details": {"image_tokens": 1, "reasoning_tokens": 2},
    },
    {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"audio_tokens": 2, "image_tokens": 2}},
]


@pytest.mark.parametrize("wire", BAD_USAGES)
def test_what_cannot_be_believed_is_malformed(wire: object) -> None:
    with pytest.raises(MalformedUsage):
        parse_openai_usage(wire)


FIELDS = [
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
    *("cached_tokens", "prompt_cache_hit_tokens", "cache_creation", "input_tokens", "output_tokens"),
]
INNER = ["cached_tokens", "reasoning_tokens", "audio_tokens", "cache_write_tokens", "ephemeral_1h_input_tokens"]
COUNTS = st.integers(0, 1000) | st.integers() | st.floats() | st.text(max_size=3) | st.none() | st.booleans()


@settings(max_examples=90)
@given(
    st.dictionaries(
        st.sampled_from(FIELDS), COUNTS | st.dictionaries(st.sampled_from(INNER), COUNTS, max_size=3) | st.lists(COUNTS)
    )
)
def test_any_usage_is_either_sound_or_malformed(wire: dict[str, object]) -> None:
    try:
        usage = parse_openai_usage(wire)
    except MalformedUsage:
        return
    counts = [value for name, value in structs.asdict(usage).items() if name.endswith("_tokens")]
    assert all(type(value) is int and 0 <= value <= 3 * MAX_TOKENS for value in counts)
    assert usage.cached_input_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens <= usage.input_tokens
    assert usage.reasoning_tokens <= usage.output_tokens
    assert usage.reasoning_tokens == usage.output_tokens or not usage.is_estimated
