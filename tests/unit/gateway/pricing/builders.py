"""Valid prices and usages; each test sets only what it is about."""

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from backends.usage import Usage
from gateway.pricing.catalogue import Ladder, ModelPrices, ModelRecord, OffPeak, ProviderPrices, Rates, Service, Step

SONNET = Rates(
    input=3_000_000, output=15_000_000, cached_input=300_000, cache_write_5m=3_750_000, cache_write_1h=6_000_000
)
"""$3 / $15 / $0.30 / $3.75 / $6 per million tokens."""


def make_prices(
    rates: Rates = SONNET,
    *,
    steps: tuple[Step, ...] = (),
    services: dict[str, Service] | None = None,
    from_us: int = 0,
    per_request_pico_usd: int = 0,
    discount: Fraction = Fraction(0),
    off_peak: OffPeak | None = None,
) -> ModelPrices:
    return ModelPrices(
        ladder=Ladder(rates, steps),
        from_us=from_us,
        source="a test",
        services=services or {},
        per_request_pico_usd=per_request_pico_usd,
        discount=discount,
        off_peak=off_peak,
    )


def make_usage(**fields: Any) -> Usage:
    return Usage(**fields)


def make_file(*records: ModelRecord, provider: str = "acme") -> ProviderPrices:
    return ProviderPrices(provider, records)


def at(text: str) -> int:
    """An ISO time in UTC as microseconds since the epoch."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000
