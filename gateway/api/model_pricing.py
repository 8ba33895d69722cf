"""What a model of `/v1/models` costs now, as OpenRouter tells it, for clients that show prices. Pure."""

from typing import Final

from pydantic import BaseModel

from backends.usage import Usage
from gateway.money import plain, usd
from gateway.pricing.price import PricingError, price, unit_rates
from gateway.routing.snapshot import Candidate

TOKENS: Final = 1000
"""Of a short request: fewer than at any step of a price, and enough that the rounding of a sum does not show."""


class Pricing(BaseModel):
    """USD as decimal text: per token, and per request. Negotiated discounts, off-peak hours and the tier that the model
    is asked for are in; longer requests may cost more."""

    prompt: str
    completion: str
    request: str
    input_cache_read: str
    input_cache_write: str


def pricing_of(candidate: Candidate) -> Pricing | None:
    """None if no price per token is known, or the model is billed by something else: GPU time, images, seconds."""
    prices, tier = candidate.prices, candidate.asked_tier
    if prices is None or any(unit_rates(prices)):
        return None
    try:
        fresh = price(Usage(input_tokens=TOKENS, output_tokens=TOKENS, service_tier=tier), prices)
        read = price(Usage(input_tokens=TOKENS, cached_input_tokens=TOKENS, service_tier=tier), prices)
        written = price(Usage(input_tokens=TOKENS, cache_write_5m_tokens=TOKENS, service_tier=tier), prices)
    except PricingError:
        return None
    return Pricing(
        prompt=_each(fresh.input_pico_usd),
        completion=_each(fresh.output_pico_usd),
        request=plain(usd(fresh.other_pico_usd)),
        input_cache_read=_each(read.cached_input_pico_usd),
        input_cache_write=_each(written.cache_write_pico_usd),
    )


def _each(pico_usd: int) -> str:
    return plain(usd(pico_usd) / TOKENS)
