"""What a usage costs under given prices: exact integers, no clock, no file.

PricingError            the caller stores the cost as unknown and raises an alert; never $0
├── MalformedUsage      the token classes contradict each other
├── UnknownServiceTier  the response names a service tier without a price
├── UnknownToolPrice    the provider's own tools ran for the answer, at an unknown price
└── UnknownUnitPrice    images, seconds, characters or searches are billed, and their price or number is unknown

Money is integer pico-USD. A rate is a whole number of pico-dollars per token, so a class is exact; where a multiplier
(batch, discount) leaves a fraction of a pico-dollar, each class is rounded half-even, once, after all multipliers.
"""

import math
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter
from typing import Literal

from msgspec.structs import astuple, replace

from backends.usage import NO_UNITS, Units, Usage
from gateway.ledger.entry import Cost
from gateway.pricing.catalogue import NO_DISCOUNT, ONE, Ladder, ModelPrices, Rates

ToolKind = Literal["web_search", "file_search", "other", "free"]
"""Tools run by a provider; `other` are those whose charges no answer reports."""
SECONDS_PER_HOUR = 3600
MILLISECONDS_PER_SECOND = 1000
ROUNDING_SLACK_PICO_USD = 3
"""Four classes and fees, each rounded by at most half a pico-dollar, may exceed their rounded sum by this."""


class PricingError(ValueError):
    """No cost can be computed."""


class MalformedUsage(PricingError):
    """The provider's token counts cannot all be true."""


class UnknownServiceTier(PricingError):
    """The response was served in a tier that has no price in the catalogue."""


class UnknownToolPrice(PricingError):
    """The catalogue lacks the price of a search, or another tool ran, whose charges no answer reports."""


class UnknownUnitPrice(PricingError):
    """Images, seconds, characters or searches are billed without a known price, neither by tokens nor by unit; or their
    number was not reported."""


def price(usage: Usage, prices: ModelPrices) -> Cost:
    """Cost of one call by token class, in the service tier that the response names.

    Audio and image tokens count in the input or output class; fees, searches and units in `other`. Raises
    MalformedUsage, UnknownServiceTier, UnknownToolPrice and UnknownUnitPrice.
    """
    check(usage)
    ladder, multiplier = service(prices, usage.service_tier)
    amounts = class_amounts(usage, ladder)
    fee = prices.per_request_pico_usd
    if usage.web_searches or usage.file_searches or usage.other_tool_calls:
        fee += tool_fees(usage, prices)
    if usage.units != NO_UNITS or is_by_what_is_told(prices):
        fee += unit_fees(usage, prices)
    if multiplier is ONE and prices.discount is NO_DISCOUNT:  # nothing to round: whole pico-dollars stay whole
        return Cost(*amounts, fee, 0, sum(amounts) + fee)
    share = prices.paid_share
    factor = share if multiplier is ONE else multiplier * share
    fresh, read, written, output = (rounded(amount, factor) for amount in amounts)
    at_list = sum(rounded(amount, multiplier) for amount in amounts) + fee
    return Cost(fresh, read, written, output, rounded(fee, share), 0, at_list)


def tool_fees(usage: Usage, prices: ModelPrices) -> int:
    """Raises UnknownToolPrice."""
    fees = 0
    for what, calls, each in (
        ("web searches", usage.web_searches, prices.web_search_pico_usd),
        ("file searches", usage.file_searches, prices.file_search_pico_usd),
        ("other tool calls", usage.other_tool_calls, None),
    ):
        if calls and each is None:
            raise UnknownToolPrice(f"{calls} {what} have no price in {prices.source}")
        fees += calls * (each or 0)
    return fees


def unit_fees(usage: Usage, prices: ModelPrices) -> int:
    """Total of everything billed by the unit, rounded half-even once. Raises UnknownUnitPrice."""
    has_tokens = bool(usage.input_tokens or usage.output_tokens)
    for what, count, rate in (
        ("second of audio", usage.units.audio_milliseconds, prices.per_audio_second_pico_usd),
        ("search", usage.units.search_units, prices.per_search_unit_pico_usd),
    ):
        if rate is not None and has_tokens and not count:
            raise UnknownUnitPrice(f"{prices.source} has a price for a {what}, and nobody counted them")
    for what, count, rate in zip(Units.__struct_fields__, astuple(usage.units), unit_rates(prices), strict=True):
        if count and rate is None and not has_tokens:
            raise UnknownUnitPrice(f"{count} {what} have no price in {prices.source}, and no tokens were reported")
    return round(amount_of_units(usage.units, prices))


def amount_of_units(units: Units, prices: ModelPrices) -> Fraction:
    """Pico-USD of the units that have a price."""
    if 0 < units.audio_milliseconds < prices.least_audio_milliseconds:
        units = replace(units, audio_milliseconds=prices.least_audio_milliseconds)
    counts = zip(astuple(units), unit_rates(prices), strict=True)
    return sum((count * rate for count, rate in counts if rate), Fraction(0))


def is_by_what_is_told(prices: ModelPrices) -> bool:
    """Whether it has prices per unit that only the provider can count."""
    return prices.per_audio_second_pico_usd is not None or prices.per_search_unit_pico_usd is not None


def unit_rates(prices: ModelPrices) -> tuple[Fraction | None, ...]:
    """Pico-USD for one of each unit in `Units`."""
    second = prices.per_audio_second_pico_usd
    return (
        _whole(prices.per_image_pico_usd),
        None if second is None else Fraction(second, MILLISECONDS_PER_SECOND),
        _whole(prices.per_character_pico_usd),
        _whole(prices.per_search_unit_pico_usd),
    )


def _whole(rate: int | None) -> Fraction | None:
    return None if rate is None else Fraction(rate)


def tool_price(kind: ToolKind, prices: ModelPrices) -> int:
    """Price of one call of such a tool. Raises UnknownToolPrice.

    A model with a fee per request is one that always searches: that fee is the price of its searches.
    """
    if kind == "free" or (kind == "web_search" and prices.per_request_pico_usd):
        return 0
    each = {"web_search": prices.web_search_pico_usd, "file_search": prices.file_search_pico_usd}.get(kind)
    if each is None:
        raise UnknownToolPrice(f"{kind} has no price in {prices.source}")
    return each


def price_text_tokens(
    input_tokens: int, cached_tokens: int, output_tokens: int, prices: ModelPrices, written_tokens: int = 0
) -> int | None:
    """Total `price` of a text request in the ordinary tier; None where that takes more than its rates and a discount.

    `written_tokens` of the input are written to a cache for minutes. A decision asks this for every candidate.
    """
    if not prices.is_plain:
        return None
    ladder = prices.ladder
    rates = ladder.base
    for step in ladder.steps:
        if input_tokens > step.above_input_tokens:
            rates = step.rates
    fresh, output = (input_tokens - cached_tokens - written_tokens) * rates.input, output_tokens * rates.output
    cached = cached_tokens * own(rates.cached_input, rates.input) if cached_tokens else 0
    written = written_tokens * own(rates.cache_write_5m, rates.input) if written_tokens else 0
    fee = prices.per_request_pico_usd
    if prices.discount is not NO_DISCOUNT:
        return sum([rounded(amount, prices.paid_share) for amount in (fresh, cached, written, output, fee)])
    return fresh + cached + written + output + fee


def price_bound(
    input_tokens: int,
    max_output_tokens: int,
    prices: ModelPrices,
    *,
    service_tier: str | None = None,
    may_write_cache: bool = True,
    may_write_for_minutes: bool = False,
    may_have_media: bool = True,
    tool_calls: int = 0,
    tool_kinds: Collection[ToolKind] = (),
    units: Units = NO_UNITS,
) -> int:
    """The most, in pico-USD, that a request within these lengths can cost, however its tokens are classified.

    The answer may come from the requested service tier or the ordinary one. Stating that a request neither writes a
    cache nor carries audio or images tightens the bound; `may_write_for_minutes` still allows writes for minutes.
    The provider's tools in `tool_kinds` may run `tool_calls` times in all; `units` are the most that may be billed.
    Raises UnknownServiceTier and UnknownToolPrice.
    """
    fee = prices.per_request_pico_usd
    if tool_calls:
        fee += tool_calls * max((tool_price(kind, prices) for kind in tool_kinds), default=0)
    if units != NO_UNITS:
        fee += math.ceil(amount_of_units(units, prices))
    ordinary, asked = (prices.ladder, ONE), service(prices, service_tier)
    is_ordinary = asked[0] is prices.ladder and asked[1] is ONE
    bounds: list[int] = []
    for ladder, multiplier in (ordinary,) if is_ordinary else (ordinary, asked):
        reached = [ladder.base]
        if ladder.steps:
            reached += [step.rates for step in ladder.steps if input_tokens > step.above_input_tokens]
        dearest_input = dearest_output = 0
        for rates in reached:
            one = highest_input(rates, may_write_cache=may_write_cache, may_have_media=may_have_media)
            if may_write_for_minutes:
                one = max(one, rates.cache_write_5m or 0)
            other = highest_output(rates, may_have_media=may_have_media)
            dearest_input = one if one > dearest_input else dearest_input
            dearest_output = other if other > dearest_output else dearest_output
        amount = input_tokens * dearest_input + max_output_tokens * dearest_output
        if multiplier is ONE and prices.discount is NO_DISCOUNT:  # whole pico-dollars stay whole
            bounds.append(amount + fee)
        else:
            (over, under), (kept, of) = multiplier.as_integer_ratio(), prices.paid_share.as_integer_ratio()
            bounds.append(-(-(amount * over + fee * under) * kept // (under * of)))  # rounded up
    return (bounds[0] if is_ordinary else max(bounds)) + ROUNDING_SLACK_PICO_USD


def price_compute(gpu_seconds: float, gpu_hour_pico_usd: int) -> Cost:
    """Cost of GPU time at an hourly price, rounded half-even once. Raises MalformedUsage if it is not a duration."""
    if not math.isfinite(gpu_seconds) or gpu_seconds < 0:
        raise MalformedUsage(f"gpu_seconds is {gpu_seconds}")
    numerator, denominator = gpu_seconds.as_integer_ratio()  # exact: a float is a fraction already
    compute = round(Fraction(numerator * gpu_hour_pico_usd, denominator * SECONDS_PER_HOUR))
    return Cost(compute_pico_usd=compute, list_pico_usd=compute)


def check(usage: Usage) -> None:
    """Raises MalformedUsage unless the parts fit into their totals."""
    counts = read_counts(usage)
    if min(counts) < 0:
        name = COUNTS[counts.index(min(counts))]
        raise MalformedUsage(f"{name} is {min(counts)}")
    cache = usage.cached_input_tokens + usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    if usage.units != NO_UNITS and min(astuple(usage.units)) < 0:
        raise MalformedUsage(f"{usage.units} are billed")
    media = usage.audio_input_tokens + usage.image_input_tokens
    spoken = usage.reasoning_tokens + usage.audio_output_tokens + usage.image_output_tokens
    if cache > usage.input_tokens:
        raise MalformedUsage(f"{cache} tokens of cache reads and writes in {usage.input_tokens} input_tokens")
    if media > usage.input_tokens:
        raise MalformedUsage(f"{media} tokens of audio and image in {usage.input_tokens} input_tokens")
    spoken_before = usage.cached_audio_tokens
    if spoken_before > usage.cached_input_tokens or spoken_before > usage.audio_input_tokens:
        raise MalformedUsage(f"{usage.cached_audio_tokens} tokens of cached audio in {usage}")
    if spoken > usage.output_tokens:
        raise MalformedUsage(f"{spoken} tokens of reasoning, audio and images in {usage.output_tokens} output_tokens")


COUNTS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_tokens"))
read_counts: Callable[[Usage], tuple[int, ...]] = attrgetter(*COUNTS)


def service(prices: ModelPrices, service_tier: str | None) -> tuple[Ladder, Fraction]:
    """Price list and multiplier of a service tier, or of several joined by `+`. Raises UnknownServiceTier."""
    name = (service_tier or "").lower()
    if name == "fast" and name not in prices.services and "priority" in prices.services:
        name = "priority"  # renamed by OpenAI, which takes both names and may answer with either
    if name in prices.services:
        terms = prices.services[name]
        return terms.ladder or prices.ladder, terms.multiplier
    if "+" in name and all(part in prices.services for part in name.split("+")):
        joined = [prices.services[part] for part in name.split("+")]
        if all(one.ladder is None for one in joined):
            return prices.ladder, math.prod((one.multiplier for one in joined), start=ONE)
    if name not in prices.standard_tiers:
        raise UnknownServiceTier(f"service tier {service_tier!r} has no price in {prices.source}")
    return prices.ladder, ONE


def usual(prices: ModelPrices, asked_tier: str | None) -> tuple[Rates, Fraction]:
    """Rates of short requests that always ask for that tier, and their multiplier; the ordinary ones if it has no
    price."""
    try:
        ladder, multiplier = service(prices, asked_tier)
    except UnknownServiceTier:
        return prices.rates, ONE
    return ladder.base, multiplier


def has_own_price(prices: ModelPrices, service_tier: str) -> bool:
    """Whether answers in that tier cost something else than ordinary ones, and how much is known."""
    try:
        ladder, multiplier = service(prices, service_tier)
    except UnknownServiceTier:
        return False
    return ladder is not prices.ladder or multiplier != ONE


def class_amounts(usage: Usage, ladder: Ladder) -> tuple[int, int, int, int]:
    """Pico-USD of fresh input, cached input, cache writes and output before multipliers."""
    whole = ladder.base
    if not ladder.steps and not usage.audio_input_tokens and not usage.image_input_tokens:
        return text_amounts(usage, whole)
    for step in ladder.steps:
        if not step.is_marginal and usage.input_tokens > step.above_input_tokens:
            whole = step.rates
    amounts = [0, 0, 0]
    for kind, rates, tokens in input_pieces(usage, whole, ladder):
        index, rate = kind_rate(kind, rates)
        amounts[index] += tokens * rate
    return amounts[0], amounts[1], amounts[2], output_amount(usage, whole)


def text_amounts(usage: Usage, rates: Rates) -> tuple[int, int, int, int]:
    """`class_amounts` if all tokens of a class cost the same, the most frequent case in decisions and replays."""
    read, short, long = usage.cached_input_tokens, usage.cache_write_5m_tokens, usage.cache_write_1h_tokens
    short_rate, long_rate = write_rates(rates)
    return (
        (usage.input_tokens - read - short - long) * rates.input,
        read * own(rates.cached_input, rates.input),
        short * short_rate + long * long_rate,
        output_amount(usage, rates),
    )


def output_amount(usage: Usage, rates: Rates) -> int:
    plain = usage.output_tokens - usage.reasoning_tokens - usage.audio_output_tokens - usage.image_output_tokens
    return (
        plain * rates.output
        + usage.reasoning_tokens * own(rates.reasoning, rates.output)
        + usage.audio_output_tokens * own(rates.audio_output, rates.output)
        + usage.image_output_tokens * own(rates.image_output, rates.output)
    )


def input_pieces(usage: Usage, whole: Rates, ladder: Ladder) -> Iterator[tuple[str, Rates, int]]:
    """`(kind, rates, tokens)` that add up to the input, in prompt order: a cache holds the prefix.

    Where a provider does not report how much audio was cached, and always for images, it counts as fresh as far as
    fresh tokens go, which never understates the cost.
    """
    fresh = usage.input_tokens - usage.cached_input_tokens - usage.cache_write_5m_tokens - usage.cache_write_1h_tokens
    audio = min(usage.audio_input_tokens - usage.cached_audio_tokens, fresh)
    image = min(usage.image_input_tokens, fresh - audio)
    kinds = (
        ("read", usage.cached_input_tokens - usage.cached_audio_tokens),
        ("read_audio", usage.cached_audio_tokens),
        ("write_1h", usage.cache_write_1h_tokens),
        ("write_5m", usage.cache_write_5m_tokens),
        ("text", fresh - audio - image),
        ("image", image),
        ("audio", audio),
    )
    marginal = [step for step in ladder.steps if step.is_marginal]
    at = 0
    for kind, tokens in kinds:
        end = at + tokens
        cuts = [at, *(step.above_input_tokens for step in marginal if at < step.above_input_tokens < end), end]
        for start, stop in pairwise(cuts):
            beyond = [step.rates for step in marginal if step.above_input_tokens <= start]
            yield kind, (beyond[-1] if beyond else whole), stop - start
        at = end


def kind_rate(kind: str, rates: Rates) -> tuple[int, int]:
    """The class (0 fresh, 1 cached, 2 written) and the rate of a kind of input."""
    if kind.startswith("read"):
        read = own(rates.cached_input, rates.input)
        return 1, read if kind == "read" else own(rates.cached_audio_input, read)
    if kind.startswith("write"):
        return 2, write_rates(rates)[kind == "write_1h"]
    if kind == "audio":
        return 0, own(rates.audio_input, rates.input)
    return 0, own(rates.image_input, rates.input) if kind == "image" else rates.input


def write_rates(rates: Rates) -> tuple[int, int]:
    """Rates of prompt cache writes kept for minutes, and for an hour or longer."""
    short = own(rates.cache_write_5m, rates.input)
    return short, own(rates.cache_write_1h, short)


def own(rate: int | None, otherwise: int) -> int:
    return otherwise if rate is None else rate


def rounded(amount: int, multiplier: Fraction) -> int:
    """Half-even, as Fraction rounds, at a fraction of its cost."""
    numerator, denominator = multiplier.as_integer_ratio()
    whole, rest = divmod(amount * numerator, denominator)
    return whole + (2 * rest > denominator or (2 * rest == denominator and whole % 2 == 1))


def highest_input(rates: Rates, *, may_write_cache: bool, may_have_media: bool) -> int:
    """The highest rate that an input token can incur."""
    found = max(rates.input, rates.cached_input or 0)
    if may_write_cache:
        found = max(found, rates.cache_write_5m or 0, rates.cache_write_1h or 0)
    if may_have_media:
        found = max(found, rates.audio_input or 0, rates.image_input or 0, rates.cached_audio_input or 0)
    return found


def highest_output(rates: Rates, *, may_have_media: bool) -> int:
    found = max(rates.output, rates.reasoning or 0)
    return max(found, rates.audio_output or 0, rates.image_output or 0) if may_have_media else found
