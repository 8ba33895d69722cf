"""Rows of the explorer in the order of any of their columns, and back."""

from typing import Any

import pytest

from dashboards.row_order import FIGURES, Order, in_order, next_order, parse_order


def row(team: str | None, usd: str, **given: Any) -> dict[str, Any]:
    prices = dict.fromkeys(("input_usd_per_mtok", "output_usd_per_mtok", "cost_per_request_usd"))
    counts = dict.fromkeys(("requests", "input_tokens", "cached_input_tokens", "output_tokens"), 0)
    return {"group": {"team": team}, "cost_usd": usd, **prices, **counts, **given}


ROWS = [
    row("beta", "9.5", requests=2, output_usd_per_mtok="10", input_tokens=100, cached_input_tokens=10),
    row("Alpha", "10", requests=3),
    row(None, "0.000001", requests=1, output_usd_per_mtok="9.75", input_tokens=10, cached_input_tokens=9),
    row("gamma", "0", requests=0),
]


def teams(order: Order) -> list[str | None]:
    return [one["group"]["team"] for one in in_order(ROWS, order, lambda _, value: value)]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("spend", ["Alpha", "beta", None, "gamma"]),
        ("-spend", ["gamma", None, "beta", "Alpha"]),
        ("requests", ["Alpha", "beta", None, "gamma"]),
        ("team", ["Alpha", "beta", "gamma", None]),
        ("-team", ["gamma", "beta", "Alpha", None]),
        ("output-price", ["beta", None, "Alpha", "gamma"]),
        ("-output-price", [None, "beta", "Alpha", "gamma"]),
        ("cached", [None, "beta", "Alpha", "gamma"]),
    ],
)
def test_figures_fall_names_rise_and_what_is_unknown_stands_last(order: str, expected: list[str | None]) -> None:
    found = parse_order(order, ["team"])
    assert found is not None
    assert found.address() == order
    assert teams(found) == expected


@pytest.mark.parametrize("column", FIGURES)
def test_every_figure_of_a_report_can_be_ordered_by(column: str) -> None:
    assert len(teams(Order(column))) == len(ROWS)


@pytest.mark.parametrize("text", [None, "", "-", "model", "cost_usd", "<script>"])
def test_what_is_no_column_leaves_rows_as_they_are(text: str | None) -> None:
    assert parse_order(text, ["team"]) is None


def test_a_name_is_what_people_call_it() -> None:
    rows = [row("key_1", "1"), row("key_2", "2")]
    names = {"key_1": "zoo", "key_2": "app"}
    assert [one["group"]["team"] for one in in_order(rows, Order("team"), lambda _, key: names[key])] == [
        "key_2",
        "key_1",
    ]


def test_a_heading_leads_to_its_order_and_then_to_the_other_way_round() -> None:
    asked = next_order("requests", Order("spend"))
    assert asked == Order("requests")
    assert asked.is_falling
    turned = next_order("requests", asked)
    assert turned == Order("requests", is_turned=True)
    assert not turned.is_falling
    assert next_order("requests", turned) == asked
    assert not Order("team").is_falling
