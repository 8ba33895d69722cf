"""The month's tiles are the forecast's own figures, with a budget beside them or without one."""

from datetime import UTC, datetime
from typing import Any

import pytest

from dashboards.pages.overview import against, beside, month_tiles, saved_tiles
from dashboards.periods import Period, preset

MONTH: dict[str, Any] = {"spent_usd": "11.5", "low_usd": "20", "expected_usd": "30.25", "high_usd": "41"}


@pytest.mark.parametrize(
    ("period", "now", "before", "said"),
    [
        ("month", "112", "100", "; +12 % against the same part of last month"),
        ("30d", 90, 100, "; −10 % against the 30 days before"),
        ("last-month", "1", "1", "; 0 % against the month before"),
        ("24h", "30", "1", "; over 10 × that of the 24 hours before"),
        ("7d", "1", "0", ""),
    ],
)
def test_a_figure_is_told_against_the_time_before(period: str, now: str | int, before: str | int, said: str) -> None:
    assert against(now, before, preset(period, datetime(2026, 3, 5, tzinfo=UTC))) == said


def test_a_time_of_ones_own_is_told_against_as_long_a_time() -> None:
    day = Period("", datetime(2026, 3, 5, tzinfo=UTC), datetime(2026, 3, 6, tzinfo=UTC))
    assert against(2, 1, day) == "; +100 % against as long a time before"


def saved(usd: str) -> str:
    return "".join(saved_tiles([{"against": "cheap", "saved_usd": "-9"}, {"against": "acme/dear", "saved_usd": usd}]))


def test_a_saving_is_told_against_the_dearest_model_and_a_loss_as_what_was_spent_more() -> None:
    assert ">Saved<" in saved("3.5")
    assert ">$3.50<" in saved("3.5")
    assert "against always acme/dear" in saved("3.5")
    assert ">Spent more<" in saved("-3.31")
    assert ">$3.31<" in saved("-3.31")
    assert "than always acme/dear" in saved("-3.31")
    assert "bad" in saved("-3.31")
    assert "bad" not in saved("0")
    assert saved_tiles([]) == []


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.04, "4 % less"),
        (1.0, "100 % less"),
        (0.001, "as much"),
        (-0.17, "17 % more"),
        (-1.0, "100 % more"),
        (-3.2, "4.2 × as much"),
        (-18.08, "19 × as much"),
        (None, "–"),
    ],
)
def test_what_was_spent_is_told_beside_what_it_would_have_been(share: float | None, said: str) -> None:
    assert beside(share) == said


def budget(amount: str, chance: float) -> dict[str, Any]:
    return {**MONTH, "budget_usd": amount, "probability_of_exceeding": chance}


def test_without_a_budget_the_month_is_forecast_all_the_same() -> None:
    spent, ahead, none = month_tiles(MONTH, None)
    assert "$11.50" in spent
    assert "$30.25" in ahead
    assert "$20.00 – $41.00" in ahead.replace("\N{NO-BREAK SPACE}", " ")
    assert "none" in none
    assert "so far, UTC<" in spent
    assert "so far, UTC, without idle GPU rent<" in month_tiles(MONTH, None, has_rent=True)[0]


@pytest.mark.parametrize(
    ("amount", "chance", "tone", "used"),
    [("121", 0.0, "good", "25"), ("60.5", 0.5, "warn", "50"), ("20", 0.99, "bad", "151")],
)
def test_a_budget_stands_beside_the_same_forecast(amount: str, chance: float, tone: str, used: str) -> None:
    spent, ahead, beside = month_tiles(MONTH, budget(amount, chance))
    assert [spent, ahead] == month_tiles(MONTH, None)[:2]
    assert f'class="be-tile {tone}"' in beside
    assert f"{used}\N{NO-BREAK SPACE}%" in beside
