"""Every figure of a price has a name, which tells whether it is per piece."""

from dataclasses import replace

from gateway.pricing.catalogue import Rates
from gateway.pricing.price_figures import figures, is_each, unit_figures
from gateway.pricing.price_text import parse_prices
from gateway.pricing.price_update import charges_alike
from gateway.pricing.price_yaml import format_prices
from tests.unit.gateway.pricing.builders import make_prices

LISTENS = replace(make_prices(Rates(0, 0)), per_audio_second_pico_usd=10**8, least_audio_milliseconds=10_000)


def test_what_is_billed_by_the_piece_is_told_each() -> None:
    told = dict(figures(LISTENS))
    assert told == {"input": "0", "output": "0", "per audio second": "0.0001", "least audio seconds": "10"}
    assert dict(unit_figures(LISTENS)) == {"per audio second": "0.0001"}
    assert [name for name in told if is_each(name)] == ["per audio second"]


def test_records_that_differ_in_such_a_figure_charge_differently() -> None:
    assert charges_alike(LISTENS, replace(LISTENS, source="elsewhere", from_us=5))
    for change in ({"per_audio_second_pico_usd": 1}, {"least_audio_milliseconds": 0}, {"per_image_pico_usd": 1}):
        assert not charges_alike(LISTENS, replace(LISTENS, **change))


def test_a_file_says_them_and_is_read_back() -> None:
    text = """\
provider: acme
models:
  listens:
    prices:
    - from: 2026-06-01
      source: "a test"
      input: 0
      output: 0
      image_output: 30
      per_image_usd: 0.02
      per_audio_second_usd: 0.0001
      per_character_usd: 0.000015
      least_audio_seconds: 10
"""
    file = parse_prices(text, "acme.yaml")
    [prices] = file.models[0].history
    assert prices.rates.image_output == 30_000_000
    assert (prices.per_image_pico_usd, prices.per_audio_second_pico_usd) == (2 * 10**10, 10**8)
    assert (prices.per_character_pico_usd, prices.least_audio_milliseconds) == (15 * 10**6, 10_000)
    assert format_prices(file) == text
