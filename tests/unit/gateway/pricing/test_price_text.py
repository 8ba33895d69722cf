from datetime import date
from fractions import Fraction

import pytest

from gateway.errors import ConfigurationError
from gateway.pricing.catalogue import Ladder, OffPeak, Override, Rates, Service, Step, Window
from gateway.pricing.price_text import parse_overrides, parse_prices
from tests.unit.gateway.pricing.builders import at

FULL = """\
provider: acme
standard_tiers: [on_demand]
unreported_tiers: [priority]
per_refusal_usd: 0.05
models:
  large:
    aliases: [large-0601]
    prices:
    - from: 2026-06-01
      source: "https://acme.example/prices"
      input: 2.50
      output: 10
    - from: 2026-08-01
      source: a letter
      note: cheaper
      input: 0.0028
      output: 1
      cached_input: 0.5
      cache_write_5m: 3
      cache_write_1h: 4
      reasoning: 5
      audio_input: 6
      audio_output: 7
      image_input: 8
      above:
      - {above_input_tokens: 200000, input: 1, output: 2}
      - {above_input_tokens: 300000, input: 3, output: 4, marginal: true}
      per_request_usd: 0.01
      batch: {multiplier: 0.5}
      priority: {prices: {input: 9, output: 9}}
      off_peak:
        windows_utc: [{weekdays: [7, 6], start: "22:30", end: "24:00"}]
        dates_utc: [2027-02-08, 2027-01-01]
        prices: {input: 0.1, output: 0.2}
"""
STEP = "{above_input_tokens: 9, input: 1, output: 1}"
FLAT = "prices: {input: 1, output: 1}"
MINIMAL = """\
provider: acme
models:
  large:
    prices:
    - {from: 2026-06-01, source: x, input: 1, output: 2}
"""


def test_every_field_is_read_exactly() -> None:
    file = parse_prices(FULL, "acme.yaml")
    old, new = file.models[0].history
    assert (file.provider, file.models[0].model, file.models[0].aliases) == ("acme", "large", ("large-0601",))
    assert (old.from_us, old.ladder, old.services) == (at("2026-06-01"), Ladder(Rates(2_500_000, 10_000_000)), {})
    assert (new.source, new.note, new.per_request_pico_usd) == ("a letter", "cheaper", 10_000_000_000)
    million = 1_000_000
    base = Rates(2_800, million, 500_000, 3 * million, 4 * million, 5 * million, 6 * million, 7 * million, 8 * million)
    steps = (Step(200_000, Rates(million, 2 * million)), Step(300_000, Rates(3 * million, 4 * million), True))
    assert new.ladder == Ladder(base, steps)
    assert new.services == {
        "batch": Service(Fraction(1, 2)),
        "priority": Service(ladder=Ladder(Rates(9 * million, 9 * million))),
    }
    holidays = date(2027, 1, 1), date(2027, 2, 8)
    assert new.off_peak == OffPeak((Window((6, 7), 1350, 1440),), Ladder(Rates(100_000, 200_000)), holidays)
    assert new.standard_tiers == ("", "auto", "default", "on_demand", "standard")
    assert (new.unreported_tiers, new.per_refusal_pico_usd) == (("priority",), 50_000_000_000)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("input: 1,", "inputt: 1, input: 1,", "acme.yaml:5: models.large.prices.0.inputt: is not a known field"),
        ("input: 1,", "input: -1,", "acme.yaml:5: models.large.prices.0.input: must be at least 0"),
        ("input: 1,", "input: free,", "acme.yaml:5: models.large.prices.0.input: must be a number"),
        ("input: 1,", "input: 0.0000001,", "finer than one pico-dollar per token"),
        ("input: 1,", "", "acme.yaml:5: models.large.prices.0.input: is missing"),
        ("from: 2026-06-01", "from: June", "acme.yaml:5: models.large.prices.0.from: "),
        ("source: x", "source: ''", "acme.yaml:5: models.large.prices.0.source: "),
        ("output: 2}", "output: 2, per_request_usd: 1e-13}", "finer than one pico-dollar"),
        ("output: 2}", "output: 2, per_request_usd: 1e20}", "prices.0.per_request_usd: must be below 1000000"),
        ("output: 2}", "output: 2, batch: {}}", "give either `multiplier` or `prices`"),
        ("output: 2}", "output: 2, batch: {multiplier: 1, prices: {input: 1, output: 1}}}", "give either"),
        ("output: 2}", "output: 2, slow: {multiplier: 1}}", "models.large.prices.0.slow: is not a known field"),
        (
            "output: 2}",
            f"output: 2, above: [{STEP}, {STEP}]}}",
            "must ascend",
        ),
        (
            "output: 2}",
            f"output: 2, off_peak: {{windows_utc: [{{weekdays: [1], start: '25:00', end: '26:00'}}], {FLAT}}}}}",
            "is not an hour",
        ),
        (
            "output: 2}",
            f"output: 2, off_peak: {{windows_utc: [{{weekdays: [8], start: '1:00', end: '2:00'}}], {FLAT}}}}}",
            "weekdays.0",
        ),
        ("output: 2}\n", "output: 2}\n    - {from: 2026-06-01, source: x, input: 1, output: 2}\n", "must be appended"),
        ("    prices:", "    prices: []\n    alias:", "acme.yaml:4: models.large.prices: "),
        ("provider: acme", "provider: acme\nprovider: other", "acme.yaml:2: provider: is given twice"),
        ("  large:\n", "  large: {aliases: [a], aliases: [b]}\n  other:\n", "acme.yaml:3: aliases: is given twice"),
        ("models:", "models: [", "acme.yaml:"),
        (MINIMAL, "", "acme.yaml:1: is empty"),
        (MINIMAL, "- a\n- b\n", "acme.yaml:1: file: "),
    ],
)
def test_a_wrong_file_is_refused_with_file_line_and_field(old: str, new: str, message: str) -> None:
    assert old in MINIMAL
    with pytest.raises(ConfigurationError) as caught:
        parse_prices(MINIMAL.replace(old, new, 1), "acme.yaml")
    assert message in str(caught.value)


def test_every_error_of_a_file_is_listed() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_prices(MINIMAL.replace("input: 1,", "a: 1,\n       b: 2,"), "acme.yaml")
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "acme.yaml:5",
        "acme.yaml:5",
        "acme.yaml:6",
    ]
    assert (caught.value.line, caught.value.field) == (5, "models.large.prices.0.input")


def test_negotiated_terms() -> None:
    text = """\
overrides:
- {provider: acme, discount: 0.125, from: 2026-06-01}
- {provider: vllm, model: llama, prices: [{from: 2026-06-01, source: own, input: 1, output: 2}]}
"""
    discount, own = parse_overrides(text, "terms.yaml")
    assert discount == Override("acme", discount=Fraction(1, 8), from_us=at("2026-06-01"))
    assert (own.provider, own.model, own.discount, len(own.history)) == ("vllm", "llama", None, 1)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{provider: acme}", "terms.yaml:2: overrides.0: give `discount`, `prices` or both"),
        ("{provider: acme, discount: 1.1}", "terms.yaml:2: overrides.0.discount: "),
        ("{provider: a, prices: [{from: 2026-06-01, source: x, input: 1, output: 2}]}", "`prices` needs a `model`"),
    ],
)
def test_terms_that_say_nothing_are_refused(entry: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_overrides(f"overrides:\n- {entry}\n", "terms.yaml")
    assert message in str(caught.value)
