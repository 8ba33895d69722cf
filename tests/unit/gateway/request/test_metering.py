"""When a provider's usage is believed, and what is estimated otherwise."""

import msgspec
import pytest
from msgspec.structs import replace

from backends.protocol import Chunk
from backends.usage import Units, Usage
from gateway.request.metering import WINDOWS, Meter

WINDOW = 1000
MOST = WINDOWS * WINDOW
TEXT = Chunk(b"", has_output=True, output_characters=40)
ESTIMATED = Usage(input_tokens=12, output_tokens=10, is_estimated=True)


@pytest.mark.parametrize(
    ("usages", "booked"),
    [
        ([], ESTIMATED),
        ([Usage(input_tokens=3, output_tokens=2)], Usage(input_tokens=3, output_tokens=2)),
        (
            [Usage(input_tokens=3, output_tokens=2), Usage(input_tokens=9, output_tokens=8)],
            Usage(input_tokens=9, output_tokens=8),
        ),
        ([Usage()], ESTIMATED),  # all of an answer's text, and none of its tokens
        ([Usage(output_tokens=9)], Usage(12, output_tokens=9, is_estimated=True)),  # no answer has no prompt
        ([Usage(input_tokens=MOST, output_tokens=MOST)], Usage(input_tokens=MOST, output_tokens=MOST)),
        ([Usage(input_tokens=MOST + 1, output_tokens=2)], ESTIMATED),
        ([Usage(input_tokens=3, output_tokens=999_999_999)], ESTIMATED),
        ([Usage(input_tokens=2 * MOST, web_searches=1)], Usage(input_tokens=2 * MOST, web_searches=1)),
        ([Usage(input_tokens=3, output_tokens=2, web_searches=10_001)], ESTIMATED),
        ([Usage(input_tokens=3, output_tokens=2, units=Units(images=1))], ESTIMATED),
    ],
)
def test_the_last_usage_counts_and_one_of_nothing_is_none(usages: list[Usage], booked: Usage) -> None:
    meter = Meter(started_at=0.0)
    for chunk in (TEXT, *(Chunk(b"", usage=usage) for usage in usages)):
        meter.observe(chunk, 1.0)
    assert meter.final_usage(12, WINDOW) == booked


@pytest.mark.parametrize(
    ("so_far", "booked"),
    [
        (Usage(9, 4, output_tokens=1), Usage(9, 4, output_tokens=10, is_estimated=True)),
        (Usage(9, output_tokens=30, reasoning_tokens=20), Usage(9, 0, 0, 0, 30, 20, is_estimated=True)),
        (Usage(9, output_tokens=1, charged_pico_usd=0), Usage(9, output_tokens=10, is_estimated=True)),
        (Usage(input_tokens=MOST + 1), ESTIMATED),
        (Usage(), ESTIMATED),
        (Usage(charged_pico_usd=0, is_estimated=True), replace(ESTIMATED, charged_pico_usd=0)),
    ],
)
def test_of_an_answer_that_was_cut_off_counts_what_was_reported_until_then(so_far: Usage, booked: Usage) -> None:
    meter = Meter(started_at=0.0)
    for chunk in (Chunk(b"", usage_so_far=so_far), TEXT):
        meter.observe(chunk, 1.0)
    assert meter.final_usage(12, WINDOW) == booked
    meter.observe(Chunk(b"", usage=Usage(3, output_tokens=2)), 1.0)
    assert meter.final_usage(12, WINDOW) == Usage(3, output_tokens=2)


@pytest.mark.parametrize("told", [Units(images=33), Units(search_units=1), Units(images=2, search_units=1)])
def test_nobody_draws_or_searches_many_times_as_often_as_asked(told: Units) -> None:
    asked = Units(images=2)
    assert Meter(0.0, usage=Usage(units=told)).final_usage(12, WINDOW, asked).is_estimated
    drawn = Usage(units=Units(images=3, audio_milliseconds=10**9))
    assert Meter(0.0, usage=drawn).final_usage(12, WINDOW, asked) == drawn


EMBEDDED = Chunk(b"{}", has_output=True, is_done=True)
"""Has no text."""


@pytest.mark.parametrize(
    ("usage", "booked"),
    [
        (Usage(), Usage(12, is_estimated=True)),
        (Usage(3), Usage(3)),
        (Usage(units=Units(images=1)), Usage(units=Units(images=1))),
        (Usage(charged_pico_usd=7), Usage(charged_pico_usd=7)),
    ],
)
def test_what_has_no_text_has_a_prompt_too(usage: Usage, booked: Usage) -> None:
    meter = Meter(started_at=0.0)
    meter.observe(msgspec.structs.replace(EMBEDDED, usage=usage), 1.0)
    assert meter.final_usage(12, WINDOW, Units(images=1)) == booked


def test_where_nothing_was_said_a_usage_of_nothing_is_true() -> None:
    meter = Meter(started_at=0.0, usage=Usage())
    assert meter.final_usage(12, WINDOW) == Usage()


def test_what_came_was_possible() -> None:
    """A hundred answers to one prompt."""
    many = Usage(input_tokens=3, output_tokens=2 * MOST)
    assert Meter(0.0, output_characters=2 * MOST, usage=many).final_usage(12, WINDOW) == many
    assert Meter(0.0, usage=Usage(input_tokens=2 * MOST)).final_usage(2 * WINDOW, WINDOW).input_tokens == 2 * MOST


def test_why_an_answer_ended_is_told_in_openais_words() -> None:
    """Replays and feedback leave out what was cut off, whoever cut it."""
    meter = Meter(started_at=0.0)
    meter.observe(Chunk(b"", finish_reason="model_context_window_exceeded"), 1.0)
    assert meter.finish_reason == "length"
