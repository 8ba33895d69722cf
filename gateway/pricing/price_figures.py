"""The figures of a price record by name, as decimal text in USD per million tokens."""

from collections.abc import Iterator
from fractions import Fraction

from gateway.money import plain, usd
from gateway.pricing.catalogue import Ladder, ModelPrices
from gateway.pricing.price_yaml import UNIT_FEES, decimal_text, rate_texts, window_text


def figures(prices: ModelPrices) -> Iterator[tuple[str, str]]:
    """`(name, text)` of every figure: `input`, `output above 200000`, `batch multiplier`, `priority input`, ..."""
    yield from ladder_figures("", prices.ladder)
    for name, service in prices.services.items():
        if service.ladder is None:
            yield f"{name} multiplier", str(service.multiplier)
        else:
            yield from ladder_figures(f"{name} ", service.ladder)
    if prices.per_request_pico_usd:
        yield "per request", plain(usd(prices.per_request_pico_usd))
    yield from unit_figures(prices)
    if prices.least_audio_milliseconds:
        yield "least audio seconds", str(prices.least_audio_milliseconds // 1000)
    if prices.off_peak:
        yield from ladder_figures("off-peak ", prices.off_peak.ladder)
        yield "off-peak hours", "; ".join(window_text(window) for window in prices.off_peak.windows)
        if prices.off_peak.dates:
            yield "off-peak dates", ", ".join(map(str, prices.off_peak.dates))


def terms_text(discount: Fraction) -> str:
    """What is negotiated: `12% less`, `10% more`, or nothing."""
    return f"{decimal_text(abs(100 * discount))}% {'less' if discount > 0 else 'more'}" if discount else ""


def is_each(name: str) -> bool:
    """Whether a figure is per request, image, call, ... instead of per million tokens."""
    return name.startswith("per ")


def unit_figures(prices: ModelPrices) -> Iterator[tuple[str, str]]:
    """Prices per image, second of audio, character or search, in USD each, for models billed by them."""
    for name in UNIT_FEES:
        fee: int | None = getattr(prices, f"{name}_pico_usd")
        if fee is not None:
            yield name.replace("_", " "), plain(usd(fee))


def tool_figures(prices: ModelPrices) -> Iterator[tuple[str, str]]:
    """Prices per call of the provider's own tools, in USD each; separate, because most price lists have none."""
    for name, fee in (
        ("per web search", prices.web_search_pico_usd),
        ("per file search", prices.file_search_pico_usd),
    ):
        if fee is not None:
            yield name, plain(usd(fee))


def ladder_figures(prefix: str, ladder: Ladder) -> Iterator[tuple[str, str]]:
    yield from ((prefix + name, text) for name, text in rate_texts(ladder.base))
    for step in ladder.steps:
        limit = f" above {step.above_input_tokens}" + (" (marginal)" if step.is_marginal else "")
        yield from ((prefix + name + limit, text) for name, text in rate_texts(step.rates))
