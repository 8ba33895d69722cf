"""What a past request with no known price costs under today's knowledge of that day's prices. Pure."""

from backends.usage import Usage
from gateway.ledger.entry import Entry
from gateway.pricing.catalogue import PriceBook
from gateway.pricing.price import PricingError, price


def late_cost_pico_usd(entry: Entry, book: PriceBook) -> int | None:
    """The effective cost at the price in force when it was accepted; None when it had a cost or still has no price.

    The ledger keeps no audio or image counts: such tokens are priced as text.
    """
    if entry.cost is not None:
        return None
    prices = book.lookup(entry.provider, entry.upstream_model, entry.intent.accepted_at_us)
    if prices is None:
        return None
    usage = Usage(
        input_tokens=entry.input_tokens,
        cached_input_tokens=entry.cached_input_tokens,
        cache_write_5m_tokens=entry.cache_write_5m_tokens,
        cache_write_1h_tokens=entry.cache_write_1h_tokens,
        output_tokens=entry.output_tokens,
        reasoning_tokens=entry.reasoning_tokens,
        service_tier=entry.service_tier,
    )
    try:
        return price(usage, prices).total_pico_usd
    except PricingError:
        return None
