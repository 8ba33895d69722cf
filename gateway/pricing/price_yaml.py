"""Formats price values as a YAML price file: one line per record where it fits. The inverse of price_text."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction

from gateway.money import PICO_PER_TOKEN_AT_USD_PER_MTOK, plain, usd
from gateway.pricing.catalogue import (
    STANDARD_TIERS,
    Ladder,
    ModelPrices,
    ModelRecord,
    ProviderPrices,
    Rates,
    Service,
    Window,
)

PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./")

SEARCH_FEES = ("web_search", "file_search")
UNIT_FEES = ("per_image", "per_audio_second", "per_character", "per_search_unit")


def format_prices(file: ProviderPrices) -> str:
    """The whole file, models sorted by name; parse_prices() of it returns `file`."""
    lines = [f"provider: {file.provider}"]
    billed_alike = sorted({t for m in file.models for p in m.history for t in p.standard_tiers} - set(STANDARD_TIERS))
    if billed_alike:
        lines.append(f"standard_tiers: [{', '.join(map(quoted, billed_alike))}]")
    unreported = sorted({tier for m in file.models for p in m.history for tier in p.unreported_tiers})
    if unreported:
        lines.append(f"unreported_tiers: [{', '.join(map(quoted, unreported))}]")
    refusals = {p.per_refusal_pico_usd for m in file.models for p in m.history} - {0}
    lines += [f"per_refusal_usd: {plain(usd(pico))}" for pico in refusals]
    everywhere = [text for name in SEARCH_FEES if (text := fee_of_all(file, name)) is not None]
    lines += everywhere
    lines.append("models:")
    for record in sorted(file.models, key=lambda record: record.model):
        lines += model_lines(record, everywhere)
    return "\n".join(lines) + "\n"


def fee_of_all(file: ProviderPrices, name: str) -> str | None:
    """The search fee common to all records of the file, if they agree."""
    texts = {fee_text(prices, name) for record in file.models for prices in record.history}
    return next(iter(texts)) if len(texts) == 1 else None


def fee_text(prices: ModelPrices, name: str) -> str | None:
    pico: int | None = getattr(prices, f"{name}_pico_usd")
    return None if pico is None else f"{name}_usd: {plain(usd(pico))}"


def model_lines(record: ModelRecord, everywhere: Sequence[str]) -> Iterator[str]:
    yield f"  {quoted(record.model)}:"
    if record.aliases:
        yield f"    aliases: [{', '.join(map(quoted, record.aliases))}]"
    yield "    prices:"
    for prices in record.history:
        yield from record_lines(prices, everywhere)


def record_lines(prices: ModelPrices, everywhere: Sequence[str]) -> Iterator[str]:
    """`everywhere` is what the file says for all records."""
    yield f"    - from: {prices.from_date}"
    yield f"      source: {quoted(prices.source)}"
    if prices.note:
        yield f"      note: {quoted(prices.note)}"
    for pair in rate_pairs(prices.rates):
        yield f"      {pair}"
    if prices.ladder.steps:
        yield f"      above: {steps_text(prices.ladder)}"
    if prices.per_request_pico_usd:
        yield f"      per_request_usd: {plain(usd(prices.per_request_pico_usd))}"
    yield from (f"      {text}" for name in UNIT_FEES if (text := fee_text(prices, name)) is not None)
    if prices.least_audio_milliseconds:
        yield f"      least_audio_seconds: {prices.least_audio_milliseconds // 1000}"
    for text in (fee_text(prices, name) for name in SEARCH_FEES):
        if text is not None and text not in everywhere:
            yield f"      {text}"
    for name, service in prices.services.items():
        yield f"      {name}: {service_text(service)}"
    if prices.off_peak:
        yield "      off_peak:"
        yield f"        windows_utc: [{', '.join(window_text(window) for window in prices.off_peak.windows)}]"
        if prices.off_peak.dates:
            yield f"        dates_utc: [{', '.join(map(str, prices.off_peak.dates))}]"
        yield f"        prices: {{{ladder_text(prices.off_peak.ladder)}}}"


def rate_pairs(rates: Rates) -> Iterator[str]:
    yield from (f"{name}: {text}" for name, text in rate_texts(rates))


def rate_texts(rates: Rates) -> Iterator[tuple[str, str]]:
    """Each class that has a price, and the price in USD per million tokens."""
    for name in Rates.__dataclass_fields__:
        value: int | None = getattr(rates, name)
        if value is not None:
            yield name, plain(Decimal(value) / PICO_PER_TOKEN_AT_USD_PER_MTOK)


def ladder_text(ladder: Ladder) -> str:
    pairs = [*rate_pairs(ladder.base), *([f"above: {steps_text(ladder)}"] if ladder.steps else [])]
    return ", ".join(pairs)


def steps_text(ladder: Ladder) -> str:
    steps = (
        ", ".join(
            (
                f"above_input_tokens: {step.above_input_tokens}",
                *rate_pairs(step.rates),
                *(["marginal: true"] if step.is_marginal else []),
            )
        )
        for step in ladder.steps
    )
    return f"[{', '.join(f'{{{step}}}' for step in steps)}]"


def service_text(service: Service) -> str:
    if service.ladder is not None:
        return f"{{prices: {{{ladder_text(service.ladder)}}}}}"
    return f"{{multiplier: {decimal_text(service.multiplier)}}}"


def decimal_text(ratio: Fraction) -> str:
    """Exact decimal text. Raises ValueError for a ratio such as 5/3 that has none."""
    value = Decimal(ratio.numerator) / Decimal(ratio.denominator)
    if Fraction(value) != ratio:
        raise ValueError(f"{ratio} has no exact decimal text")
    return plain(value)


def window_text(window: Window) -> str:
    days = ", ".join(map(str, window.weekdays))
    return f'{{weekdays: [{days}], start: "{hour(window.start_minute)}", end: "{hour(window.end_minute)}"}}'


def hour(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def quoted(text: str) -> str:
    """Unquoted if YAML reads it back unchanged, otherwise in double quotes."""
    if text and set(text) <= PLAIN and text[0] not in "-.":
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
