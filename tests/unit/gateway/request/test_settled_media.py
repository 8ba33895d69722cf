"""The entry records audio and image tokens separately, so that a later price can be applied to them."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from backends.protocol import Chunk
from backends.usage import Units, Usage
from gateway.ledger.entry import Entry, Media, Status
from gateway.pricing.catalogue import ModelPrices
from gateway.request.metering import Meter
from gateway.request.settlement import Outcome, settle_entry
from tests.builders import make_candidate, make_facts, make_prices
from tests.unit.gateway.ledger.builders import make_intent


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        (Usage(9, output_tokens=3), Media()),
        (Usage(9, output_tokens=3, audio_output_tokens=2), Media(0, 2, 0)),
        (Usage(9, 3, audio_input_tokens=4, cached_audio_tokens=3), Media(4, cached_audio_tokens=3)),
        (Usage(9, output_tokens=3, audio_input_tokens=4, image_input_tokens=5), Media(4, 0, 5)),
    ],
)
def test_audio_and_images_are_kept(usage: Usage, kept: Media) -> None:
    meter = Meter(started_at=0.0)
    meter.observe(Chunk(b"", usage=usage), 1.0)
    entry = settle_entry(make_intent(), meter, Outcome(Status.completed, 200, make_candidate(), (), 1.0))
    assert entry.media == kept


def settled(prices: ModelPrices, usage: Usage | None, status: Status = Status.completed, **facts: Any) -> Entry:
    """The entry of an answer that arrived, unless the caller left before."""
    meter = Meter(started_at=0.0)
    if status is Status.completed:
        meter.observe(Chunk(b"x", has_output=True, usage=usage), 1.0)
    decision = msgspec.structs.replace(make_intent().decision, facts=make_facts(max_output_tokens=None, **facts))
    intent = msgspec.structs.replace(make_intent(), decision=decision, cost_bound_pico_usd=10**13)
    candidate = make_candidate(prices=prices)
    outcome = Outcome(status, 200, candidate, (), 1.0, may_have_been_billed=status is Status.cancelled)
    return settle_entry(intent, meter, outcome)


def test_speech_whose_tokens_nobody_told_is_booked_as_what_was_expected() -> None:
    spoken: dict[str, Any] = {"input_tokens": 5, "units": Units(characters=20), "output_tokens": {"mid": 28.0}}
    entry = settled(make_prices(1.0, 4.0, audio_output=12_000_000), None, **spoken)
    assert entry.media == Media(audio_output_tokens=28, characters=20)
    assert entry.is_usage_estimated
    assert entry.cost is not None
    assert entry.cost.total_pico_usd == 5 * 1_000_000 + 28 * 12_000_000
    assert entry.cost_lower_pico_usd == 2 * 1_000_000 + 14 * 12_000_000
    assert entry.cost_upper_pico_usd == 10**13


def test_characters_were_counted_and_seconds_guessed() -> None:
    """The cost of a recording of unknown length lies between half of the estimated seconds and the bound."""
    free = replace(make_prices(0, 0), per_character_pico_usd=2, per_audio_second_pico_usd=None)
    entry = settled(free, None, Status.cancelled, units=Units(characters=20), output_tokens={})
    assert (entry.cost_lower_pico_usd, entry.cost and entry.cost.total_pico_usd) == (40, 40)
    whisper = replace(make_prices(0, 0), per_audio_second_pico_usd=1000)
    guessed = settled(whisper, None, units=Units(audio_milliseconds=9000), output_tokens={})
    assert (guessed.cost_lower_pico_usd, guessed.cost and guessed.cost.total_pico_usd) == (4500, 9000)


def test_searches_that_nobody_counted_are_at_least_half_of_those_expected() -> None:
    ranker = replace(make_prices(0, 0), per_search_unit_pico_usd=1000)
    entry = settled(ranker, None, input_tokens=50, units=Units(search_units=3), output_tokens={})
    assert (entry.cost_lower_pico_usd, entry.cost and entry.cost.total_pico_usd) == (2000, 3000)
    assert (entry.media, entry.input_tokens, entry.output_tokens) == (Media(search_units=3), 50, 0)
    by_token = settled(make_prices(1, 9), Usage(40), units=Units(search_units=3), output_tokens={})
    assert (by_token.cost and by_token.cost.total_pico_usd, by_token.media) == (40 * 1_000_000, Media())


def test_what_was_counted_is_kept_where_only_tokens_are_missing() -> None:
    whisper = replace(make_prices(0, 0), per_audio_second_pico_usd=1000)
    captions = Usage(units=Units(audio_milliseconds=4000), is_estimated=True)
    entry = settled(whisper, captions, units=Units(audio_milliseconds=9000), output_tokens={})
    assert (entry.cost and entry.cost.total_pico_usd, entry.is_usage_estimated) == (4000, True)


def test_an_image_without_tokens_or_price_is_not_free() -> None:
    entry = settled(make_prices(5, 30), Usage(units=Units(images=1)), units=Units(images=1))
    assert (entry.cost, entry.cost_upper_pico_usd, entry.is_usage_estimated) == (None, None, False)
    assert entry.media == Media(images=1)
