"""Forecasts are tested by what they promise: nine totals of ten within the interval, on series with known truth."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pytest

from gateway.reports.daily_costs import DailyCost, DailyHistory, Range, TooShort
from gateway.reports.forecast import (
    burn_budget,
    burn_of_month,
    find_unusual_days,
    forecast,
)

START = date(2026, 1, 5)
USD = 10**12
WEEKDAYS = (1.0, 1.1, 1.05, 1.0, 0.9, 0.4, 0.35)


def make_history(costs: Sequence[float]) -> list[DailyCost]:
    return [DailyCost(START + timedelta(days=day), round(cost * USD)) for day, cost in enumerate(costs)]


def make_series(days: int, seed: int, *, growth: float = 0.0, noise: float = 0.08) -> list[float]:
    """Dollars a day with weekends, growth and noise."""
    generator = np.random.default_rng(seed)
    return [
        100 * WEEKDAYS[day % 7] * (1 + growth * day) * float(np.exp(generator.normal(0, noise))) for day in range(days)
    ]


def generator() -> np.random.Generator:
    return np.random.default_rng(1)


def test_nine_totals_of_ten_lie_within_the_interval() -> None:
    inside = 0
    for seed in range(12):
        series = make_series(56 + 14, seed, growth=0.002)
        predicted = forecast(make_history(series[:56]), 14, generator=generator())
        inside += predicted.total.low_pico_usd <= sum(series[56:]) * USD <= predicted.total.high_pico_usd
    assert inside >= 10


def test_a_level_may_wander_that_was_not_seen_to() -> None:
    """The best fit to these days is a constant level: intervals 60 days ahead used to be as narrow as tomorrow's."""
    days = forecast(make_history([100.0, 150.0] * 8), 60, generator=generator()).days
    first, last = (day.cost.high_pico_usd - day.cost.low_pico_usd for day in (days[0], days[-1]))
    assert last > 1.2 * first


def test_three_expensive_days_at_the_end_are_a_level_and_no_growth() -> None:
    """Such as jobs at a month's end: the next month was expected to be half as expensive again as they were."""
    usual = sum(make_series(30, 99))
    expected = []
    for seed in range(4):
        series = [cost * (2.5 if day >= 21 else 1) for day, cost in enumerate(make_series(24, seed, noise=0.2))]
        expected.append(forecast(make_history(series), 30, generator=generator()).total.middle_pico_usd / USD)
    assert np.mean(expected) < 2.5 * usual


def test_growth_by_as_many_dollars_a_day_does_not_become_growth_by_shares_for_ever() -> None:
    inside = 0
    for seed in range(8):
        series = make_series(45 + 90, seed, growth=0.1, noise=0.15)
        total = forecast(make_history(series[:45]), 90, generator=generator()).total
        inside += total.low_pico_usd <= sum(series[45:]) * USD <= total.high_pico_usd
    assert inside >= 7


def test_a_year_after_a_month_of_growth_is_no_multiple_of_what_was_never_seen() -> None:
    ramp = [10 + day for day in range(30)]
    year = forecast(make_history(ramp), 365, generator=generator()).total
    assert 365 * 30 * USD < year.middle_pico_usd < 365 * 120 * USD


def test_weekends_are_expected() -> None:
    predicted = forecast(make_history(make_series(56, 3)), 7, generator=generator())
    assert predicted.method == "level, slope and weekdays"
    by_weekday = {day.day.weekday(): day.cost.middle_pico_usd for day in predicted.days}
    assert by_weekday[6] < 0.6 * by_weekday[1]
    assert predicted.days[0].day == START + timedelta(days=56)


def test_an_interval_of_a_total_is_narrower_than_the_sum_of_its_days() -> None:
    predicted = forecast(make_history(make_series(56, 4)), 14, generator=generator())
    widths = sum(day.cost.high_pico_usd - day.cost.low_pico_usd for day in predicted.days)
    assert predicted.total.high_pico_usd - predicted.total.low_pico_usd < widths


@pytest.mark.parametrize(
    ("days", "method"),
    [
        (2, "mean of the days seen"),
        (9, "mean of the days seen"),
        (13, "mean of the days seen"),
        (14, "level and weekdays"),
        (20, "level and weekdays"),
    ],
)
def test_short_histories_use_simpler_methods(days: int, method: str) -> None:
    predicted = forecast(make_history(make_series(days, 5)), 5, generator=generator())
    assert predicted.method == method
    assert predicted.total.low_pico_usd < predicted.total.middle_pico_usd < predicted.total.high_pico_usd
    assert predicted.total.low_pico_usd >= 0


@pytest.mark.parametrize("days", [10, 14, 20])
def test_weekends_are_no_noise_in_the_second_and_third_week(days: int) -> None:
    """An interval used to be up to four times as wide as what it was of: weekends passed for a wandering level."""
    total = forecast(make_history(make_series(days, 5)), 30, generator=generator()).total
    assert total.high_pico_usd - total.low_pico_usd < 0.6 * total.middle_pico_usd


def test_two_days_say_less_than_nine() -> None:
    series = [100.0, 110.0, 105.0, 95.0, 104.0, 99.0, 101.0, 98.0, 107.0]
    few = forecast(make_history(series[:2]), 5, generator=generator()).total
    more = forecast(make_history(series), 5, generator=generator()).total
    assert few.high_pico_usd - few.low_pico_usd > 2 * (more.high_pico_usd - more.low_pico_usd)


@pytest.mark.parametrize("cost", [0.0, 42.0])
def test_a_flat_history_stays_flat(cost: float) -> None:
    predicted = forecast(make_history([cost] * 30), 10, generator=generator())
    assert predicted.total.low_pico_usd == predicted.total.high_pico_usd == round(10 * cost * USD)


def test_the_same_generator_gives_the_same_forecast() -> None:
    history = make_history(make_series(40, 6))
    assert forecast(history, 9, generator=generator()) == forecast(history, 9, generator=generator())


def test_days_without_traffic_are_days() -> None:
    series = [0.0 if day % 7 >= 5 else 50.0 + day % 3 for day in range(42)]
    predicted = forecast(make_history(series), 7, generator=generator())
    by_weekday = {day.day.weekday(): day.cost.middle_pico_usd for day in predicted.days}
    assert by_weekday[6] < 5 * USD < 40 * USD < by_weekday[2]


def test_one_day_is_too_short_and_gaps_are_refused() -> None:
    with pytest.raises(TooShort):
        forecast(make_history([1.0]), 5, generator=generator())
    gap = [*make_history([1.0, 2.0]), DailyCost(START + timedelta(days=9), USD)]
    with pytest.raises(ValueError, match="one row per day"):
        find_unusual_days(gap)


def test_a_budget_that_will_run_out() -> None:
    """About $83 a day: a budget of $1,000 for 28 days is spent in the second week."""
    history = make_history(make_series(35, 7))
    start = START + timedelta(days=28)
    burn = burn_budget(history, history[28:], 1000 * USD, start, start + timedelta(days=27), generator=generator())
    assert burn.spent_pico_usd == sum(row.cost_pico_usd for row in history[28:])
    assert burn.probability_of_exceeding > 0.99
    assert burn.runs_out_early is not None
    assert burn.runs_out_middle is not None
    assert burn.runs_out_late is not None
    assert burn.runs_out_early <= burn.runs_out_middle <= burn.runs_out_late
    assert start + timedelta(days=9) <= burn.runs_out_middle <= start + timedelta(days=15)


def test_a_budget_that_lasts() -> None:
    history = make_history(make_series(35, 8))
    start = START + timedelta(days=28)
    burn = burn_budget(history, history[28:], 10_000 * USD, start, start + timedelta(days=27), generator=generator())
    assert burn.probability_of_exceeding == 0
    assert burn.runs_out_early is None
    assert burn.projected.low_pico_usd > burn.spent_pico_usd


def test_a_budget_that_is_gone_already() -> None:
    history = make_history([100.0] * 14)
    end = START + timedelta(days=27)
    burn = burn_budget(history, history, 250 * USD, START, end, generator=generator())
    assert burn.runs_out_early == burn.runs_out_late == START + timedelta(days=2)
    assert burn.probability_of_exceeding == 1.0


def test_a_period_that_is_over_is_exact() -> None:
    history = make_history([100.0] * 14)
    burn = burn_budget(history, history[:7], 650 * USD, START, START + timedelta(days=6), generator=generator())
    assert burn.projected.low_pico_usd == burn.projected.high_pico_usd == 700 * USD
    assert (burn.probability_of_exceeding, burn.runs_out_middle) == (1.0, START + timedelta(days=6))


def test_a_period_that_has_not_begun_spends_nothing_before_it() -> None:
    history = make_history([100.0] * 14)
    start = START + timedelta(days=20)
    burn = burn_budget(history, [], 350 * USD, start, start + timedelta(days=6), generator=generator())
    assert burn.spent_pico_usd == 0
    assert burn.projected.middle_pico_usd == 700 * USD
    assert burn.runs_out_middle == start + timedelta(days=3)


def test_what_a_forecast_may_not_learn_from_is_spent_all_the_same() -> None:
    """A ledger's first day is seldom whole, and somebody may ask for a short history."""
    days = make_history([100.0] * 14)
    burn = burn_budget(days[7:], days, 2000 * USD, START, START + timedelta(days=19), generator=generator())
    assert (burn.spent_pico_usd, burn.projected.middle_pico_usd) == (1400 * USD, 2000 * USD)


def test_what_today_has_cost_is_no_matter_of_odds() -> None:
    history = make_history([10.0] * 14)
    end = START + timedelta(days=19)
    burn = burn_budget(history, history, 250 * USD, START, end, generator=generator())
    today = START + timedelta(days=14)
    assert (burn.probability_of_exceeding, burn.runs_out_middle) == (0.0, None)
    assert burn.with_today(5 * USD, today) == replace(burn, spent_pico_usd=145 * USD), "a part of an ordinary day"
    gone = burn.with_today(120 * USD, today)
    assert (gone.spent_pico_usd, gone.projected) == (260 * USD, Range(260 * USD, 260 * USD, 260 * USD))
    assert (gone.probability_of_exceeding, gone.runs_out_early, gone.runs_out_late) == (1.0, today, today)


@pytest.mark.parametrize(("dollars", "month", "odds"), [(9, 297, 0.0), (100, 384, 1.0)], ids=["usual", "unusual"])
def test_an_unusual_day_comes_on_top_of_the_days_to_come(dollars: int, month: int, odds: float) -> None:
    """The month used to be expected to cost what it cost already, though half of it was still to come."""
    days, today = tuple(make_history([9.0, 10.0] * 7)), START + timedelta(days=14)
    history = DailyHistory(days, (*make_history([10.0] * 4), *days), dollars * USD)
    burn = burn_of_month(history, 350 * USD, today).with_today(history.today_pico_usd, today)
    assert burn.projected.middle_pico_usd == pytest.approx(month * USD, rel=0.02)
    assert burn.probability_of_exceeding == pytest.approx(odds, abs=0.01)
    begun = forecast(days, 1, begun_pico_usd=history.begun_pico_usd, generator=generator()).total
    assert begun.low_pico_usd >= history.begun_pico_usd >= (0 if odds == 0 else 90 * USD)


def test_a_budget_that_was_gone_before_today_stays_gone_since_then() -> None:
    history = make_history([100.0] * 14)
    burn = burn_budget(history, history, 250 * USD, START, START + timedelta(days=27), generator=generator())
    assert burn.with_today(USD, START + timedelta(days=14)).runs_out_middle == START + timedelta(days=2)


def test_a_budget_that_a_refund_restored_did_not_run_out() -> None:
    history = make_history([100.0, 200.0, -250.0, *[10.0] * 7])
    for end in (9, 10):
        burn = burn_budget(history, history, 250 * USD, START, START + timedelta(days=end), generator=generator())
        assert (burn.spent_pico_usd, burn.runs_out_middle) == (120 * USD, None)


@pytest.mark.parametrize("refund", [-300.0, -5000.0])
def test_a_large_refund_is_no_reason_to_expect_money(refund: float) -> None:
    """Larger than half, and than all, of what 28 days cost."""
    series = [20.0 + day % 3 for day in range(28)]
    series[20] = refund
    predicted = forecast(make_history(series), 7, generator=generator())
    assert all(day.cost.low_pico_usd >= 0 for day in predicted.days)
    assert predicted.total.middle_pico_usd > 0


def test_a_strange_day_is_found_and_a_weekend_is_not_strange() -> None:
    series = make_series(56, 9, noise=0.04)
    series[30] *= 2.5
    series[40] *= 0.2
    unusual = find_unusual_days(make_history(series))
    assert {day.day for day in unusual[:2]} == {START + timedelta(days=30), START + timedelta(days=40)}
    assert len(unusual) <= 4
    assert {day.day: day.score > 0 for day in unusual[:2]} == {
        START + timedelta(days=30): True,
        START + timedelta(days=40): False,
    }


@pytest.mark.parametrize(("days", "most"), [(14, 2), (21, 8), (29, 6), (90, 3)])
def test_noise_is_seldom_unusual(days: int, most: int) -> None:
    """Of twenty series each; before few days were trusted less, there were 18, 23, 14 and 2 such days."""
    found = [find_unusual_days(make_history(make_series(days, seed, noise=0.08))) for seed in range(20)]
    assert sum(map(len, found)) <= most


def test_short_histories_are_compared_with_their_median() -> None:
    unusual = find_unusual_days(make_history([10.0, 11.0, 9.5, 10.5, 60.0, 10.0]))
    assert [(day.day, day.expected_pico_usd) for day in unusual] == [(START + timedelta(days=4), round(10.25 * USD))]


def test_a_perfectly_flat_history_has_no_strange_day() -> None:
    assert find_unusual_days(make_history([10.0] * 30)) == []
    assert find_unusual_days(make_history([0.0] * 30)) == []
