"""How a budget fares in a calendar month, from simulated paths. Imports statsmodels: import this when asked only."""

import calendar
from datetime import date

import numpy as np

from gateway.reports.daily_costs import BudgetBurn, DailyHistory
from gateway.reports.forecast import burn_budget

SEED = 20_261_101
"""Fixed, so that the same question has the same answer."""


def burn_of_month(history: DailyHistory, budget_pico_usd: int, today: date) -> BudgetBurn:
    """Of the month `today` is in, by its complete days. Raises TooShort where they are too few to say."""
    first, last = today.replace(day=1), today.replace(day=calendar.monthrange(today.year, today.month)[1])
    generator = np.random.default_rng(SEED)
    return burn_budget(history.complete, history.month, budget_pico_usd, first, last, generator=generator)
