"""What is charged, shared among the classes of tokens."""

from fractions import Fraction

import pytest

from backends.usage import Usage
from gateway.ledger.entry import Cost
from gateway.pricing.catalogue import ModelPrices, Rates
from gateway.pricing.charged import charged
from tests.unit.gateway.pricing.builders import make_prices

GLM = make_prices(Rates(1_400_000, 4_400_000))
"""OpenRouter's price of GLM 5.3; a host of its charges less."""
DISCOUNTED = make_prices(Rates(1_400_000, 4_400_000), discount=Fraction(1, 10))


@pytest.mark.parametrize(
    ("prices", "charge", "tier", "expected"),
    [
        (GLM, 2_590_800_000, None, Cost(109_200_000, 0, 0, 2_481_600_000, 0, 0, 2_590_800_000)),
        (GLM, 2_450_145_000, None, Cost(103_271_513, 0, 0, 2_346_873_487, 0, 0, 2_450_145_000)),
        (GLM, 2_590_800_007, None, Cost(109_200_000, 0, 0, 2_481_600_000, 7, 0, 2_590_800_007)),
        (GLM, 0, None, Cost()),
        (GLM, 7, "unheard of", Cost(other_pico_usd=7, list_pico_usd=7)),
        (None, 7, None, Cost(other_pico_usd=7, list_pico_usd=7)),
        (DISCOUNTED, 5_000_000_000, None, Cost(98_280_000, 0, 0, 2_233_440_000, 2_168_280_000, 0, 5_000_000_000)),
    ],
)
def test_what_is_charged_is_what_it_costs(
    prices: ModelPrices | None, charge: int, tier: str | None, expected: Cost
) -> None:
    usage = Usage(78, output_tokens=564, other_tool_calls=1, service_tier=tier, charged_pico_usd=charge)
    assert charged(usage, prices) == expected
