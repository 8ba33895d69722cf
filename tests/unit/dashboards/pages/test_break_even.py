"""The charts of break-even also have tables, for those who cannot see them."""

from typing import Any

from dashboards.pages.break_even import capacity_note, curve_table, payback_tiles, tornado_table
from tests.unit.dashboards.views import cells_of


def test_the_curves_are_a_table() -> None:
    point = {"requests_per_day": 1200.4, "hosted_usd": 10.0, "owned_usd": 14.4}
    bare = {**point, "owned_low_usd": None, "owned_high_usd": None}
    wide = {**point, "owned_low_usd": 14.0, "owned_high_usd": 15.25}
    assert cells_of(curve_table([bare, wide])) == [
        ["1,200", "$10.00", "$14.40", "–", "–"],
        ["1,200", "$10.00", "$14.40", "$14.00", "$15.25"],
    ]


def test_what_moves_the_saving_is_a_table() -> None:
    moved = {"saving_at_minus_25_percent_usd": "-20", "saving_at_plus_25_percent_usd": "3.5"}
    report: dict[str, Any] = {
        "month": {"plan_saving_usd": "-8.25"},
        "tornado": [{"input": "price of a GPU-hour", **moved}],
    }
    assert cells_of(tornado_table(report)) == [["price of a GPU-hour", "−$20.00", "−$8.25", "$3.50"]]


def test_one_month_is_one_month() -> None:
    [tile] = payback_tiles({"purchase_usd": 100.0, "months": 1, "best_recovered_usd": 120.0})
    assert ">1 month<" in tile


def test_the_capacity_used_says_by_what_as_the_page_of_utilisation_counts_more() -> None:
    owned = {"is_measured": True, "idle_usd": "18.5"}
    assert capacity_note(owned) == "measured, by these requests; idle rent $18.50, as booked"
    assert capacity_note({**owned, "is_measured": False}) == "expected; idle rent $18.50"
