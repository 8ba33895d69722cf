import pytest

from gateway.economics.payback import payback


def test_a_saving_below_zero_recovers_nothing() -> None:
    result = payback(purchase_usd=100, month_cost_usd=50, replaced_month_usd=40)
    assert (result.month, result.best_recovered_usd, result.best_month) == (None, 0.0, 0)


def test_the_month_of_an_even_saving() -> None:
    assert payback(purchase_usd=100, month_cost_usd=10, replaced_month_usd=35).month == 4
    assert payback(purchase_usd=101, month_cost_usd=10, replaced_month_usd=35).month == 5


def test_it_gives_up_at_the_horizon() -> None:
    result = payback(purchase_usd=1000, month_cost_usd=0, replaced_month_usd=1, months=12)
    assert result.month is None
    assert result.best_recovered_usd == pytest.approx(12)
