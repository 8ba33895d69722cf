"""A month's outlook against its budget, from simulated paths. Imports statsmodels: import this when asked only."""

from datetime import date, timedelta

import numpy as np

from gateway.budgets_service import DaysOfCost, Outlook
from gateway.reports.forecast import DailyCost, TooShort, burn_budget

SEED = 20_261_121


def look_ahead(days: DaysOfCost, budget_pico_usd: int, first: date, last: date) -> Outlook | None:
    """None where the days are too few to say anything."""
    history = [DailyCost(days.first + timedelta(days=n), cost) for n, cost in enumerate(days.pico_usd)]
    try:
        burn = burn_budget(history, budget_pico_usd, first, last, generator=np.random.default_rng(SEED))
    except TooShort:
        return None
    return Outlook(
        low_pico_usd=burn.projected.low_pico_usd,
        expected_pico_usd=burn.projected.middle_pico_usd,
        high_pico_usd=burn.projected.high_pico_usd,
        probability_of_exceeding=burn.probability_of_exceeding,
        runs_out=burn.runs_out_middle,
    )
