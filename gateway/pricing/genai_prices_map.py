"""Converts genai-prices' records, as plain values, to our price values. Never imports genai_prices."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction

from gateway.instants import start_of_day_us
from gateway.pricing.catalogue import Ladder, ModelPrices, Rates, Service, Step
from gateway.pricing.litellm_map import classes, has_decimal_text, per_token

PROVIDERS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "gemini",
    "deepseek": "deepseek",
    "groq": "groq",
    "mistral": "mistral",
    "together": "together_ai",
    "x-ai": "xai",
    "cerebras": "cerebras",
    "fireworks": "fireworks_ai",
    "openrouter": "openrouter",
}
"""genai-prices' provider names to ours."""
CLASSES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cached_input",
    "cache_write_mtok": "cache_write_5m",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
    "input_audio_mtok": "audio_input",
    "output_audio_mtok": "audio_output",
    "cache_audio_read_mtok": "cached_audio_input",
    "input_image_mtok": "image_input",
}
SERVICES = {
    ("processing", "batch"): "batch",
    ("service_tier", "priority"): "priority",
    ("service_tier", "flex"): "flex",
    ("speed", "fast"): "fast",
}


@dataclass(frozen=True, slots=True)
class Tiered:
    """USD per million tokens: `base`, and from each start (in input tokens) on a different price for all of them."""

    base: Decimal
    tiers: tuple[tuple[int, Decimal], ...] = ()


PriceTable = Mapping[str, Tiered]


@dataclass(frozen=True, slots=True)
class Row:
    """One model: its dated price tables (None: always, or at certain hours if `has_hours`) and its variants."""

    provider: str
    model: str
    tables: Sequence[tuple[date | None, PriceTable]]
    variants: Sequence[tuple[Mapping[str, str], date | None, PriceTable]] = field(default_factory=tuple)
    has_hours: bool = False


def convert_rows(rows: Sequence[Row], *, as_of: date, source: str) -> dict[str, dict[str, ModelPrices]]:
    """Provider -> model -> the prices in force on `as_of`.

    Left out: models that cost nothing, models priced by the hour of the day, and OpenRouter's `:batch`, `:free` and
    `~latest` names, which are variants of others.
    """
    found: dict[str, dict[str, ModelPrices]] = {}
    for row in rows:
        provider = PROVIDERS.get(row.provider)
        if provider is None or row.has_hours or (provider == "openrouter" and not is_model(row.model)):
            continue
        prices = convert(row, as_of=as_of, source=source)
        if prices is not None:
            found.setdefault(provider, {})[row.model] = prices
    return found


def is_model(name: str) -> bool:
    return "/" in name and ":" not in name and not name.startswith("~")


def convert(row: Row, *, as_of: date, source: str) -> ModelPrices | None:
    active = [(since, table) for since, table in row.tables if since is None or since <= as_of]
    if not active:
        return None
    since, table = max(active, key=lambda entry: entry[0] or date.min)
    ladder = ladder_of(table)
    if not (ladder.base.input or ladder.base.output):
        return None
    services: dict[str, Service] = {}
    for when, variant_since, variant in row.variants:
        name = SERVICES.get(next(iter(when.items()))) if len(when) == 1 else None
        if name and (variant_since is None or variant_since <= as_of):
            services[name] = service_of(ladder, ladder_of({**table, **variant}))  # it overrides only what it names
    return ModelPrices(
        ladder=ladder,
        from_us=start_of_day_us(since or as_of.replace(day=1)),
        source=source,
        services={name: services[name] for name in SERVICES.values() if name in services},
    )


def service_of(ordinary: Ladder, own: Ladder) -> Service:
    """A multiplier if every class agrees on it, otherwise the price list."""
    plain, dear = list(rates_of(ordinary)), list(rates_of(own))
    ratio = Fraction(own.base.input, ordinary.base.input) if ordinary.base.input else Fraction(0)
    is_multiple = dear == [(above, name, ratio * rate) for above, name, rate in plain]
    return Service(multiplier=ratio) if is_multiple and has_decimal_text(ratio) else Service(ladder=own)


def rates_of(ladder: Ladder) -> Iterator[tuple[int, str, int]]:
    for above, rates in ((0, ladder.base), *((step.above_input_tokens, step.rates) for step in ladder.steps)):
        yield from ((above, name, rate) for name, rate in classes(rates))


def ladder_of(table: PriceTable) -> Ladder:
    rates = {CLASSES[key]: price for key, price in table.items() if key in CLASSES}
    starts = sorted({start for price in rates.values() for start, _ in price.tiers})
    return Ladder(rates_at(rates, 0), tuple(Step(start, rates_at(rates, start)) for start in starts))


def rates_at(rates: Mapping[str, Tiered], start: int) -> Rates:
    """A zero beside a price means "not billed separately", our None."""
    found = {name: pico(price, start) for name, price in rates.items()}
    plain = Rates(input=found.get("input", 0), output=found.get("output", 0))
    return replace(plain, **{name: value for name, value in found.items() if value})


def pico(price: Tiered, start: int) -> int:
    reached = [tier for begin, tier in price.tiers if begin <= start]
    return per_token((reached[-1] if reached else price.base) / 1_000_000)
