from pathlib import Path

import msgspec
import pytest

from backends.formats.usage_wire import parse_openai_usage
from backends.usage import Usage
from gateway.config.price_files import SHIPPED, load_overrides, load_price_book, load_prices
from gateway.errors import ConfigurationError
from gateway.instants import DAY_US
from gateway.money import parse_usd
from gateway.pricing.catalogue import Rates
from gateway.pricing.price import price, unit_rates
from gateway.pricing.price_yaml import format_prices
from tests.unit.gateway.pricing.builders import at

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


@pytest.mark.parametrize(("tier", "pico_usd"), [("priority", 16_380_000), ("standard", 9_360_000), (None, 9_360_000)])
def test_mistral_charges_7_quarters_in_its_priority_tier(tier: str | None, pico_usd: int) -> None:
    """docs.mistral.ai/inference/priority-tier, also for cached tokens."""
    prices = load_price_book(providers=["mistral"]).lookup("mistral", "mistral-small-latest", NOVEMBER_2026_US)
    assert prices is not None
    told = {"prompt_tokens": 64, "completion_tokens": 14, "total_tokens": 78, "service_tier": tier}
    usage = parse_openai_usage(told | {"prompt_tokens_details": {"cached_tokens": 64}})
    assert price(usage, prices).total_pico_usd == pico_usd


@pytest.mark.parametrize(
    ("time", "usd"),
    [
        ("2027-02-04T08:00", "0.042"),  # a Thursday
        ("2027-02-08T08:00", "0.021"),  # the third day of the Spring Festival, a Monday
        ("2027-02-20T08:00", "0.021"),  # a Saturday, whether people work for another day or not
        ("2027-10-05T03:59:59", "0.021"),
        ("2027-10-08T03:59:59", "0.042"),
        ("2027-10-08T04:00", "0.021"),
    ],
)
def test_deepseek_has_no_peak_on_chinas_public_holidays(time: str, usd: str) -> None:
    """api-docs.deepseek.com/quick_start/pricing since September 2026. It was booked at twice what it costs."""
    prices = load_price_book(providers=["deepseek"]).lookup("deepseek", "deepseek-flash", at(time))
    assert prices is not None
    assert price(Usage(100_000, output_tokens=10_000), prices).total_pico_usd == parse_usd(usd)


@pytest.mark.parametrize(
    ("provider", "model", "tier"),
    [
        ("groq", "openai/gpt-oss-120b", "performance"),
        ("openai", "gpt-5.4", "scale"),
        ("anthropic", "claude-fable-5", "priority"),
    ],
)
def test_capacity_that_was_bought_before_has_the_ordinary_price(provider: str, model: str, tier: str) -> None:
    prices = load_price_book(providers=[provider]).lookup(provider, model, NOVEMBER_2026_US)
    assert prices is not None
    usage = Usage(1000, output_tokens=10)
    assert price(msgspec.structs.replace(usage, service_tier=tier), prices) == price(usage, prices)


@pytest.mark.parametrize(("tokens", "usd"), [(199_999, "0.400598"), (200_000, "0.8012")])
def test_xai_charges_more_from_a_prompt_that_reaches_200_000_tokens(tokens: int, usd: str) -> None:
    """By docs.x.ai, as anomalyco/opencode#42919 and pydantic/genai-prices#586 quote it, and litellm 1.110.2's code."""
    prices = load_price_book(providers=["xai"]).lookup("xai", "grok-4.6", NOVEMBER_2026_US)
    assert prices is not None
    for images in (0, 50_000):  # "for all tokens in the request"
        usage = Usage(tokens, output_tokens=100, image_input_tokens=images)
        assert price(usage, prices).total_pico_usd == parse_usd(usd)


@pytest.mark.parametrize(
    ("model", "last_day", "usd"),
    [
        ("gemini-4-argon", "2026-11-30", "0.3"),
        ("gemini-3.8-flash", "2026-12-31", "0.1125"),
        ("gemini-flash-latest", "2026-12-31", "0.1125"),
        ("gemini-3.7-flash", "2026-12-31", "0.1125"),
        ("gemini-3.6-flash", "2026-12-31", "0.1125"),
        ("gemini-3.8-flash-tts", "2026-12-31", "0.14"),
        ("gemini-3.8-flash-lite-tts", "2026-12-31", "0.11"),
        ("gemini-robotics-er-2-preview", "2026-12-31", "0.15"),
        ("gemini-robotics-er-2-streaming-preview", "2026-12-31", "0.15"),
    ],
)
def test_introductory_prices_end_when_google_says_so(model: str, last_day: str, usd: str) -> None:
    """Twice as much for everything, in every tier, from the day after (genai-prices 0.2.3, and Google's page)."""
    book, usage = load_price_book(providers=["gemini"]), Usage(100_000, output_tokens=10_000)
    begins = at(last_day) + DAY_US
    intro, later = book.lookup("gemini", model, begins - 1), book.lookup("gemini", model, begins)
    assert intro is not None
    assert later is not None
    assert price(usage, intro).total_pico_usd == parse_usd(usd)
    assert intro.services.keys() == later.services.keys()
    for tier in (None, *intro.services):
        asked = msgspec.structs.replace(usage, cached_input_tokens=30_000, service_tier=tier)
        assert price(asked, later).total_pico_usd == 2 * price(asked, intro).total_pico_usd


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
