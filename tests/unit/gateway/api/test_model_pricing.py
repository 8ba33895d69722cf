"""The prices of `/v1/models` are those at which a short request is booked."""

from dataclasses import replace
from fractions import Fraction

import pytest

from backends.usage import Usage
from gateway.api.model_pricing import Pricing, pricing_of
from gateway.money import plain, usd
from gateway.pricing.catalogue import ModelPrices, Service
from gateway.pricing.price import price
from tests.builders import make_candidate, make_local
from tests.unit.gateway.pricing.builders import make_prices


def test_an_ordinary_models_prices_are_the_catalogues_per_token() -> None:
    pricing = pricing_of(make_candidate(prices=make_prices()))
    assert pricing == Pricing(
        prompt="0.000003",
        completion="0.000015",
        request="0",
        input_cache_read="0.0000003",
        input_cache_write="0.00000375",
    )


@pytest.mark.parametrize("tier", [None, "priority"])
def test_discounts_fees_and_the_tier_that_it_is_asked_for_are_in_them(tier: str | None) -> None:
    services = {"priority": Service(multiplier=Fraction(2))}
    prices = replace(make_prices(), services=services, discount=Fraction(1, 8), per_request_pico_usd=5_000_000_000)
    pricing = pricing_of(make_candidate(prices=prices, asked_tier=tier))
    assert pricing is not None
    booked = price(Usage(input_tokens=2000, output_tokens=1000, service_tier=tier), prices)
    assert plain(usd(booked.input_pico_usd) / 2000) == pricing.prompt
    assert plain(usd(booked.output_pico_usd) / 1000) == pricing.completion
    assert plain(usd(booked.other_pico_usd)) == pricing.request == "0.004375"


@pytest.mark.parametrize(
    "prices",
    [
        None,
        replace(make_prices(), per_image_pico_usd=20_000_000_000),
        replace(make_prices(), per_search_unit_pico_usd=2_000_000_000),
    ],
)
def test_what_is_not_billed_by_the_token_has_none(prices: ModelPrices | None) -> None:
    assert pricing_of(make_candidate(prices=prices)) is None
    assert pricing_of(make_local()) is None
    assert pricing_of(make_candidate(prices=make_prices(), asked_tier="of no price")) is None
