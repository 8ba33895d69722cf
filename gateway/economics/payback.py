"""When a purchase has paid for itself, while the prices it competes with keep falling."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payback:
    """`month` counts from 1, None when the purchase is never recovered; `best_*` is where recovery stands highest."""

    month: int | None
    best_recovered_usd: float
    best_month: int


def payback(
    *,
    purchase_usd: float,
    month_cost_usd: float,
    replaced_month_usd: float,
    yearly_price_factor: float = 1.0,
    yearly_volume_factor: float = 1.0,
    room: float = math.inf,
    months: int = 120,
) -> Payback:
    """Month by month: what is no longer paid to the API, less what running the hardware costs (opex plus F).

    `replaced_month_usd` is the first month's API bill; `yearly_price_factor` is what a price becomes within a year
    (0.5 halves it), falling evenly every month. With falling prices savings can only shrink, so recovery has a peak.
    Volume grows as evenly, and replaces more calls until it is `room` times the first month's: then the GPUs are full.
    """
    recovered, best, best_month = 0.0, 0.0, 0
    for month in range(1, months + 1):
        years = (month - 1) / 12
        volume = min(math.pow(yearly_volume_factor, years), max(room, 1.0))
        saving = replaced_month_usd * math.pow(yearly_price_factor, years) * volume - month_cost_usd
        recovered += saving
        if recovered > best:
            best, best_month = recovered, month
        if recovered >= purchase_usd:
            return Payback(month, best, best_month)
    return Payback(None, best, best_month)
