from pathlib import Path

import pytest

from backends.usage import Usage
from gateway.config.price_files import SHIPPED, load_overrides, load_price_book, load_prices
from gateway.errors import ConfigurationError
from gateway.money import parse_usd
from gateway.pricing.catalogue import Rates
from gateway.pricing.price import price, unit_rates
from gateway.pricing.price_yaml import format_prices

NOVEMBER_2026_US = 1_794_000_000_000_000
DECEMBER_2026_US = 1_797_000_000_000_000
SIZE_BUDGET_BYTES = 600_000


def test_the_shipped_catalogue_is_valid_and_small() -> None:
    files = load_prices()
    assert {file.provider for file in files} == {path.stem for path in SHIPPED.glob("*.yaml")}
    assert sum(path.stat().st_size for path in SHIPPED.glob("*.yaml")) < SIZE_BUDGET_BYTES
    assert len(load_price_book().models()) > 500


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_file_is_written_as_the_importer_writes_it(path: Path) -> None:
    """So that an import changes only the lines of the prices that changed."""
    (file,) = load_prices(providers=[path.stem])
    assert path.read_text(encoding="utf-8") == format_prices(file)


def test_a_price_of_the_shipped_catalogue() -> None:
    prices = load_price_book(providers=["openai"]).lookup("openai", "gpt-4o-mini", NOVEMBER_2026_US)
    assert prices is not None
    assert prices.rates == Rates(input=150_000, output=600_000, cached_input=75_000)


def test_xai_charges_twice_in_its_priority_tier() -> None:
    """An answer of Grok 4.6 that GulLabs/any-llm recorded, with `cost_in_usd_ticks` of 82,960,000."""
    prices = load_price_book(providers=["xai"]).lookup("xai", "grok-4.6", NOVEMBER_2026_US)
    assert prices is not None
    usage = Usage(1528, output_tokens=182, reasoning_tokens=173, service_tier="priority")
    assert price(usage, prices).total_pico_usd == 82_960_000 * 100


def test_gemini_charges_more_for_cached_audio_than_for_cached_text() -> None:
    prices = load_price_book(providers=["gemini"]).lookup("gemini", "gemini-2.5-flash", DECEMBER_2026_US)
    assert prices is not None
    usage = Usage(100_000, 90_000, audio_input_tokens=100_000, cached_audio_tokens=90_000)
    assert price(usage, prices).total_pico_usd == parse_usd("0.019")


def test_no_shipped_model_is_free_but_for_moderation() -> None:
    free = [
        m.model
        for file in load_prices()
        for m in file.models
        for p in m.history
        if p.rates == Rates(0, 0) and unit_rates(p) == (None,) * 4
    ]
    assert [name for name in free if "moderation" not in name] == []


def test_a_deployments_own_terms(tmp_path: Path) -> None:
    terms = tmp_path / "terms.yaml"
    terms.write_text("overrides: [{provider: openai, discount: 0.2}]\n")
    book = load_price_book(providers=["openai"], overrides=[terms])
    prices = book.lookup("openai", "gpt-4o-mini", NOVEMBER_2026_US)
    assert prices is not None
    assert float(prices.discount) == 0.2
    assert len(load_overrides(terms)) == 1


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("provider: acme\nmodels: {}\nextra: 1\n")
    with pytest.raises(ConfigurationError, match=r"acme\.yaml:3: extra: is not a known field"):
        load_prices(tmp_path)
    (tmp_path / "acme.yaml").write_bytes(b"provider: caf\xe9\n")
    with pytest.raises(ConfigurationError, match=r"acme\.yaml: is not UTF-8 text"):
        load_prices(tmp_path)
