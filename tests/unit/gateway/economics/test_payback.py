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


def test_growing_volume_pays_back_sooner_until_the_gpus_are_full() -> None:
    flat = payback(purchase_usd=2400, month_cost_usd=0, replaced_month_usd=100)
    doubling = payback(purchase_usd=2400, month_cost_usd=0, replaced_month_usd=100, yearly_volume_factor=2)
    full = payback(purchase_usd=2400, month_cost_usd=0, replaced_month_usd=100, yearly_volume_factor=2, room=1.5)
    no_room = payback(purchase_usd=2400, month_cost_usd=0, replaced_month_usd=100, yearly_volume_factor=2, room=0.4)
    assert flat.month == no_room.month == 24
    assert doubling.month is not None
    assert full.month is not None
    assert doubling.month < full.month < 24
    shrinking = payback(purchase_usd=2400, month_cost_usd=0, replaced_month_usd=100, yearly_volume_factor=0.5)
    assert shrinking.month is None


def test_prices_that_halve_every_year_leave_a_saving_with_a_peak() -> None:
    two_years = payback(purchase_usd=1e9, month_cost_usd=0, replaced_month_usd=100, yearly_price_factor=0.5, months=24)
    assert two_years.best_recovered_usd == pytest.approx(100 * (1 - 0.25) / (1 - 0.5 ** (1 / 12)))
    never = payback(purchase_usd=1e9, month_cost_usd=50, replaced_month_usd=100, yearly_price_factor=0.5)
    assert (never.month, never.best_month) == (None, 12), "in the thirteenth month the price is what running it costs"
