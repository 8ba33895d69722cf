"""What a call costs whose provider says what it charges. Pure, exact integers."""

from fractions import Fraction

from msgspec.structs import replace

from backends.usage import Usage
from gateway.ledger.entry import Cost
from gateway.pricing.catalogue import ModelPrices
from gateway.pricing.price import PricingError, price

NO_TOKENS = (0, 0, 0, 0)


def charged(usage: Usage, prices: ModelPrices | None) -> Cost:
    """The cost of `usage.charged_pico_usd`, less the discount that was negotiated.

    Each class of tokens costs what it does by the `prices`, or all of them less in proportion if less is charged: a
    router has several hosts for a model. What is charged beyond that, or without a price, is in `other`.
    """
    at_list = usage.charged_pico_usd or 0
    paid = at_list if prices is None else round(at_list * (Fraction(1) - prices.discount))
    classes = NO_TOKENS if prices is None else _token_costs(usage, prices)
    whole = sum(classes)
    if whole <= paid:
        return Cost(*classes, paid - whole, 0, at_list)
    read, written, output = (amount * paid // whole for amount in classes[1:])
    return Cost(paid - read - written - output, read, written, output, list_pico_usd=at_list)


def _token_costs(usage: Usage, prices: ModelPrices) -> tuple[int, int, int, int]:
    try:
        cost = price(replace(usage, web_searches=0, file_searches=0, other_tool_calls=0), prices)
    except PricingError:
        return NO_TOKENS
    return cost.input_pico_usd, cost.cached_input_pico_usd, cost.cache_write_pico_usd, cost.output_pico_usd
