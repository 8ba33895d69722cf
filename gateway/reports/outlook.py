"""How a budget fares in a calendar month, from simulated paths. Imports statsmodels: import this when asked only."""

import calendar
from collections.abc import Sequence
from datetime import date

import numpy as np

from gateway.reports.daily_costs import BudgetBurn, DailyCost
from gateway.reports.forecast import burn_budget

SEED = 20_261_101
"""Fixed, so that the same question has the same answer."""


def burn_of_month(history: Sequence[DailyCost], budget_pico_usd: int, today: date) -> BudgetBurn:
    """Of the month `today` is in; `history` ends with yesterday. Raises TooShort where it is too short to say."""
    last = today.replace(day=calendar.monthrange(today.year, today.month)[1])
    return burn_budget(history, budget_pico_usd, today.replace(day=1), last, generator=np.random.default_rng(SEED))
