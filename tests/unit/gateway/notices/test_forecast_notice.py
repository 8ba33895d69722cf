"""When it is told that a month is heading beyond its budget, and what is said."""

from dataclasses import replace
from datetime import date

import pytest

from gateway.notices.forecast_notice import Foreseen, forecast_document, forecast_due
from gateway.notices.notice import FORECAST, BudgetSpent

USD = 10**12
SPENT = BudgetSpent("team", "red", "red", "month:2026-11-01", 100 * USD, 61_200_000_000_000, True)
AHEAD = Foreseen(
    SPENT,
    learned_days=41,
    month_days=11,
    probability=0.93,
    low_pico_usd=98 * USD,
    middle_pico_usd=131 * USD,
    high_pico_usd=160 * USD,
    runs_out=date(2026, 11, 24),
    early=date(2026, 11, 22),
    late=None,
)


@pytest.mark.parametrize(
    ("foreseen", "is_due"),
    [
        (AHEAD, True),
        (replace(AHEAD, probability=0.8), True),
        (replace(AHEAD, probability=0.799), False),
        (replace(AHEAD, learned_days=10), True),
        (replace(AHEAD, learned_days=9), False),
        (replace(AHEAD, month_days=5), True),
        (replace(AHEAD, month_days=4), False),  # the last month's end may have been expensive, as always
        (replace(AHEAD, spent=replace(SPENT, spent_pico_usd=100 * USD)), False),  # its share tells of that
        (replace(AHEAD, spent=replace(SPENT, amount_pico_usd=0, spent_pico_usd=0)), False),
    ],
)
def test_it_is_told_where_it_is_likely_and_enough_is_known(foreseen: Foreseen, is_due: bool) -> None:
    assert (forecast_due(foreseen, []) is not None) is is_due


def test_once_for_an_amount_in_a_window() -> None:
    mark = SPENT.mark(FORECAST)
    assert forecast_due(AHEAD, [SPENT.mark(800)]) == mark
    assert forecast_due(AHEAD, [mark]) is None
    for other in (replace(SPENT, amount_pico_usd=90 * USD), replace(SPENT, window_id="month:2026-12-01")):
        assert forecast_due(replace(AHEAD, spent=other), [mark]) == other.mark(FORECAST)


def test_the_day_and_how_sure_it_is_are_said() -> None:
    said = forecast_document(AHEAD, page="https://ui.example/ui/budgets")
    sentence = (
        "The budget of team red will probably be spent before this month ends, on about 24 Nov (22 Nov at the "
        "earliest, or not at all): the month is heading for $131.00 ($98.00 to $160.00), its budget is $100.00, and "
        "93 % of simulated months pass it. $61.20 is spent so far. What would pass it is refused. https://ui.example/ui/budgets"
    )
    assert said == {
        "event": "budget_forecast_exceeded",
        "is_test": False,
        "scope": "team",
        "name": "red",
        "key_id": None,
        "window": "month",
        "window_starts": "2026-11-01T00:00:00Z",
        "window_ends": "2026-12-01T00:00:00Z",
        "amount_usd": "100.000000000000",
        "spent_usd": "61.200000000000",
        "spent_share": 0.612,
        "stops": True,
        "page": "https://ui.example/ui/budgets",
        "probability": 0.93,
        "forecast_low_usd": "98.000000000000",
        "forecast_usd": "131.000000000000",
        "forecast_high_usd": "160.000000000000",
        "runs_out": "2026-11-24",
        "runs_out_early": "2026-11-22",
        "runs_out_late": None,
        "learned_days": 41,
        "text": sentence,
        "content": sentence,
        "allowed_mentions": {"parse": []},
    }


@pytest.mark.parametrize(
    ("late", "early", "says"),
    [
        (date(2026, 11, 28), date(2026, 11, 22), "on about 24 Nov (22 Nov to 28 Nov): the month"),
        (date(2026, 11, 24), date(2026, 11, 24), "on about 24 Nov: the month"),
    ],
)
def test_the_days_it_lies_between(late: date, early: date, says: str) -> None:
    assert says in str(forecast_document(replace(AHEAD, early=early, late=late), page=None)["text"])


def test_nothing_is_certain_before_it_happens() -> None:
    assert "more than 99 % of simulated months" in str(
        forecast_document(replace(AHEAD, probability=1.0), page=None)["text"]
    )
