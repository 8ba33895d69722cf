"""Refusals for lack of money give advice that would help."""

import pytest

from gateway.limits.texts import budget_spent
from gateway.limits.values import StrictBudget

DOLLAR = 10**12


@pytest.mark.parametrize(("budget", "helps"), [(2 * DOLLAR, True), (DOLLAR, True), (DOLLAR // 2, False), (0, False)])
def test_the_next_window_is_waited_for_only_where_the_request_fits_into_one(budget: int, helps: bool) -> None:
    said = budget_spent(StrictBudget("key", "k", budget, "month"), spent=0, held=0, needed=DOLLAR)
    assert ("wait for the next window" in said) is helps
    assert said.endswith("or raise the budget.")
