"""Images, seconds of audio, characters and searches: billed by the unit instead of by tokens."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.usage import NO_UNITS, Units, Usage
from gateway.pricing.catalogue import ModelPrices, Rates
from gateway.pricing.price import MalformedUsage, UnknownUnitPrice, price, price_bound
from tests.unit.gateway.pricing.builders import make_prices

NOTHING = make_prices(Rates(0, 0))
IMAGE = replace(NOTHING, per_image_pico_usd=2 * 10**10)
WHISPER = replace(NOTHING, per_audio_second_pico_usd=10**8)
RANKER = replace(NOTHING, per_search_unit_pico_usd=2 * 10**9)
TTS = replace(NOTHING, per_character_pico_usd=15 * 10**6)
DRAWN = make_prices(Rates(5_000_000, 0, image_input=8_000_000, image_output=30_000_000))


@pytest.mark.parametrize(
    ("prices", "units", "pico_usd"),
    [
        (IMAGE, Units(images=3), 6 * 10**10),
        (WHISPER, Units(audio_milliseconds=60_000), 6 * 10**9),  # $0.006 a minute
        (WHISPER, Units(audio_milliseconds=1), 10**5),
        (replace(NOTHING, per_audio_second_pico_usd=3), Units(audio_milliseconds=500), 2),  # half-even, once
        (replace(NOTHING, per_audio_second_pico_usd=5), Units(audio_milliseconds=500), 2),
        (TTS, Units(characters=1_000_000), 15 * 10**12),
        (TTS, NO_UNITS, 0),
        (RANKER, Units(search_units=3), 6 * 10**9),  # $2 a thousand
    ],
)
def test_pieces_are_charged_beside_the_tokens(prices: ModelPrices, units: Units, pico_usd: int) -> None:
    cost = price(Usage(units=units), prices)
    assert (cost.other_pico_usd, cost.total_pico_usd, cost.list_pico_usd) == (pico_usd, pico_usd, pico_usd)


def test_a_short_recording_is_billed_as_the_shortest() -> None:
    groq = replace(WHISPER, least_audio_milliseconds=10_000)
    assert price(Usage(units=Units(audio_milliseconds=1_500)), groq).total_pico_usd == 10**9
    assert price(Usage(units=Units(audio_milliseconds=10_500)), groq).total_pico_usd == 1_050_000_000


def test_a_discount_is_off_the_pieces_too() -> None:
    cost = price(Usage(units=Units(images=1)), replace(IMAGE, discount=Fraction(1, 4)))
    assert (cost.total_pico_usd, cost.list_pico_usd) == (15 * 10**9, 2 * 10**10)


def test_images_that_are_billed_by_tokens_cost_what_their_tokens_do() -> None:
    """1,056 tokens of an image at $30 per million, after 12 tokens of text and 323 of an image."""
    usage = Usage(335, image_input_tokens=323, output_tokens=1056, image_output_tokens=1056, units=Units(images=1))
    cost = price(usage, DRAWN)
    assert cost.input_pico_usd == 12 * 5_000_000 + 323 * 8_000_000
    assert (cost.output_pico_usd, cost.other_pico_usd) == (1056 * 30_000_000, 0)


@pytest.mark.parametrize(
    ("prices", "usage"),
    [
        (DRAWN, Usage(units=Units(images=1))),  # no tokens were reported
        (NOTHING, Usage(units=Units(audio_milliseconds=9))),
        (NOTHING, Usage(units=Units(characters=9))),
        (WHISPER, Usage(40, output_tokens=9)),  # tokens were reported, but seconds are billed
        (RANKER, Usage(40)),
        (NOTHING, Usage(units=Units(search_units=1))),
    ],
)
def test_what_nobody_counted_or_priced_is_not_known(prices: ModelPrices, usage: Usage) -> None:
    with pytest.raises(UnknownUnitPrice):
        price(usage, prices)


@pytest.mark.parametrize("units", [Units(-1), Units(0, -1), Units(0, 0, -1), Units(0, 0, 0, -1)])
def test_a_negative_count_is_malformed(units: Units) -> None:
    with pytest.raises(MalformedUsage):
        price(Usage(units=units), IMAGE)


def test_more_image_tokens_than_output_are_malformed() -> None:
    with pytest.raises(MalformedUsage, match="images"):
        price(Usage(output_tokens=4, image_output_tokens=5), DRAWN)


@given(
    st.builds(Units, *[st.integers(0, 10**6)] * 4),
    st.integers(0, 10**5),
    st.integers(0, 10**5),
    st.integers(0, 20_000),
    st.fractions(0, 1, max_denominator=100),
)
def test_the_bound_holds(units: Units, read: int, said: int, least: int, discount: Fraction) -> None:
    prices = replace(
        DRAWN,
        per_image_pico_usd=7,
        per_audio_second_pico_usd=11,
        per_character_pico_usd=13,
        per_search_unit_pico_usd=17,
        least_audio_milliseconds=least,
        discount=discount,
    )
    usage = Usage(read, output_tokens=said, image_output_tokens=said, units=units)
    if read and not (units.audio_milliseconds and units.search_units):
        return
    assert price(usage, prices).total_pico_usd <= price_bound(read, said, prices, units=units)
