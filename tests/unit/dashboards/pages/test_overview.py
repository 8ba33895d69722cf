"""The month's tiles show the forecast's own figures, with or without a budget."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboards.earlier import Earlier
from dashboards.pages.overview import against, beside, models_table, month_tiles, saved_tiles, spend_table, volume_tiles
from dashboards.periods import Period, preset
from tests.unit.dashboards.views import cells_of, make_view

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
    shown = preset(period, datetime(2026, 3, 5, tzinfo=UTC))
    assert against(now, before, Earlier(shown.before(), shown.before().since), shown) == said


def test_a_time_of_ones_own_is_told_against_as_long_a_time() -> None:
    day = Period("", datetime(2026, 3, 5, tzinfo=UTC), datetime(2026, 3, 6, tzinfo=UTC))
    assert against(2, 1, Earlier(day.before(), day.before().since), day) == "; +100 % against as long a time before"


def test_no_figure_is_told_against_a_time_within_which_the_books_begin() -> None:
    shown = preset("30d", datetime(2026, 3, 5, tzinfo=UTC))
    begun = Earlier(shown.before(), shown.before().until - timedelta(days=2))
    assert against(90, 6, begun, shown) == "; not compared with the 30 days before, within which the books begin"
    assert against(90, 0, Earlier(shown.before(), shown.since), shown) == "", "none was before"


def saved(usd: str) -> str:
    cheap, dear = ({"against": name, "would_have_cost_usd": "9"} for name in ("cheap", "acme/dear"))
    return "".join(saved_tiles([{**cheap, "saved_usd": "-9"}, {**dear, "saved_usd": usd}], has_rent=False))


def test_a_saving_is_told_against_the_dearest_model_and_a_loss_as_what_was_spent_more() -> None:
    assert ">Saved<" in saved("3.5")
    assert ">$3.50<" in saved("3.5")
    assert "against always acme/dear" in saved("3.5")
    assert ">Spent more<" in saved("-3.31")
    assert ">$3.31<" in saved("-3.31")
    assert "than always acme/dear" in saved("-3.31")
    assert "bad" in saved("-3.31")
    assert "bad" not in saved("0")
    assert ">Saved<" in saved("0")
    assert saved_tiles([], has_rent=False) == []


def test_nothing_is_said_to_be_saved_where_nothing_was_compared() -> None:
    """A first request that failed, or whose price is unknown."""
    nothing = {"against": "acme/dear", "would_have_cost_usd": "0", "saved_usd": "0"}
    assert saved_tiles([nothing], has_rent=True) == []
    idle_rent = {**nothing, "saved_usd": "-0.1"}
    said = "".join(saved_tiles([idle_rent], has_rent=True))
    assert ">Spent more<" in said
    assert "idle rent included" in said, "the tile of the spend leaves it out"


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


def make_figures(cost_usd: str, *, requests: int = 2, unpriced_requests: int = 0) -> dict[str, Any]:
    return {
        "requests": requests,
        "unpriced_requests": unpriced_requests,
        "cost_usd": cost_usd,
        "input_usd_per_mtok": "1",
        "output_usd_per_mtok": None,
        "blended_usd_per_mtok": "2",
        "cost_per_request_usd": None,
        "time_to_first_token_p50_seconds": 0.5,
        "time_to_first_token_p95_seconds": None,
        "decode_tokens_per_second_p50": 40.0,
    }


def test_the_last_row_of_the_models_is_the_total_above_and_no_sum_of_what_is_shown() -> None:
    rows = [{"group": {"model": name}, **make_figures("0.005")} for name in ("a", "b", "c")]
    rows.append({"group": {"model": "d"}, **make_figures("0", unpriced_requests=2)})
    total = make_figures("1000.015", requests=8, unpriced_requests=2)
    cells = cells_of(models_table(rows, total, make_view()))
    assert {row[7] for row in cells} == {"0.50 / –"}
    assert [row[:3] for row in cells] == [
        *([name, "2", "<$0.01"] for name in "abc"),
        ["d", "2", "unknown"],
        ["Total", "8", "$1,000.02"],
    ]


def test_a_first_token_that_nobody_saw_is_one_dash() -> None:
    total = {**make_figures("1"), "time_to_first_token_p50_seconds": None}
    assert cells_of(models_table([], total, make_view()))[0][7] == "–"


def test_what_has_no_price_at_all_is_unknown_in_the_total_and_above_it() -> None:
    total = make_figures("0", unpriced_requests=2)
    assert cells_of(models_table([], total, make_view()))[0][2] == "unknown"
    found = {"total": {**total, "successful_requests": 2}, "idle": None}
    view = make_view()
    tile, _ = volume_tiles(found, {"cost_usd": "0", "requests": 0}, Earlier(view.period.before(), None), view)
    assert ">unknown<" in tile
    assert "$0.00" not in tile


def test_a_model_leads_to_its_requests_only_who_may_see_them() -> None:
    rows = [{"group": {"model": "a"}, **make_figures("1")}]
    assert "requests?" not in models_table(rows, make_figures("1"), make_view("reports.read"))
    assert "requests?" in models_table(rows, make_figures("1"), make_view("entries.read"))


@pytest.mark.parametrize(("bucket", "first"), [("day", "5 Mar 2026"), ("hour", "5 Mar 00:00")])
def test_the_chart_of_the_spend_is_a_table_too(bucket: str, first: str) -> None:
    points = [
        {"start": "2026-03-06T00:00:00Z", "model": "b", "cost_usd": "2"},
        {"start": "2026-03-05T00:00:00Z", "model": "a", "cost_usd": "1.5"},
        {"start": "2026-03-05T00:00:00Z", "model": "b", "cost_usd": "0.25"},
    ]
    cells = cells_of(spend_table(points, bucket))
    assert cells[0] == [first, "$1.50", "$0.25"]
    assert cells[1][1:] == ["–", "$2.00"]
