"""When a hardware purchase has paid for itself while the hosted prices it competes with keep falling."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Payback:
    """`month` counts from 1; None: the purchase is never recovered. `best_*` is the peak of the recovery."""

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
    """Accumulates month by month the API bill saved minus the cost of running the hardware (opex plus F).

    `replaced_month_usd` is the first month's API bill; `yearly_price_factor` is what prices are multiplied by over a
    year (0.5 halves them), spread evenly over the months. Savings that shrink below the cost give recovery a peak.
    Volume grows evenly too, up to `room` times the first month's: then the GPUs are full.
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
