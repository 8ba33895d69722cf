"""The month's tiles are the forecast's own figures, with a budget beside them or without one."""

from typing import Any

import pytest

from dashboards.pages.overview import month_tiles

MONTH: dict[str, Any] = {"spent_usd": "11.5", "low_usd": "20", "expected_usd": "30.25", "high_usd": "41"}


def budget(amount: str, chance: float) -> dict[str, Any]:
    return {**MONTH, "budget_usd": amount, "probability_of_exceeding": chance}


def test_without_a_budget_the_month_is_forecast_all_the_same() -> None:
    spent, ahead, none = month_tiles(MONTH, None)
    assert "$11.50" in spent
    assert "$30.25" in ahead
    assert "$20.00 – $41.00" in ahead.replace("\N{NO-BREAK SPACE}", " ")
    assert "none" in none


@pytest.mark.parametrize(
    ("amount", "chance", "tone", "used"),
    [("121", 0.0, "good", "25"), ("60.5", 0.5, "warn", "50"), ("20", 0.99, "bad", "151")],
)
def test_a_budget_stands_beside_the_same_forecast(amount: str, chance: float, tone: str, used: str) -> None:
    spent, ahead, beside = month_tiles(MONTH, budget(amount, chance))
    assert [spent, ahead] == month_tiles(MONTH, None)[:2]
    assert f'class="be-tile {tone}"' in beside
    assert f"{used}\N{NO-BREAK SPACE}%" in beside
