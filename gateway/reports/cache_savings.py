"""What providers' prompt caches saved, net of the cost of writing to them. Pure."""

from collections.abc import Sequence
from fractions import Fraction

from gateway.pricing.catalogue import Rates
from gateway.pricing.price import own, write_rates
from gateway.routing.snapshot import Snapshot
from gateway.sums import Sums


def saved_by_caches(snapshot: Snapshot, parts: Sequence[Sums]) -> int:
    """Pico-USD; negative if writes cost more than reads saved. `parts` must be grouped by model.

    The money of reads and writes is the ledger's, so it includes tiers, discounts and long prompts; the ratio to fresh
    tokens comes from the prices in `snapshot`. Models without a price there are left out.
    """
    saved = Fraction(0)
    for part in parts:
        candidate = snapshot.candidates.get(part.group["model"] or "")
        if candidate is not None and candidate.prices is not None:
            rates = candidate.prices.rates
            saved += part.cached_input_pico_usd * (_times_fresh(rates, 1, 0, 0) - 1)
            saved += part.cache_write_pico_usd * (
                _times_fresh(rates, 0, part.cache_write_5m_tokens, part.cache_write_1h_tokens) - 1
            )
    return round(saved)


def _times_fresh(rates: Rates, read: int, for_minutes: int, for_an_hour: int) -> Fraction:
    """Ratio of what these tokens would cost as fresh ones to what they cost; 1 if they are free."""
    short, long = write_rates(rates)
    paid = read * own(rates.cached_input, rates.input) + for_minutes * short + for_an_hour * long
    return Fraction((read + for_minutes + for_an_hour) * rates.input, paid) if paid else Fraction(1)
