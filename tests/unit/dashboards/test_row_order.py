"""The order by any of the explorer's columns, and its reverse, under the names of the gateway's report."""

import pytest

from dashboards.row_order import FIGURES, Order, next_order, parse_order
from gateway.reports import row_order


@pytest.mark.parametrize("text", ["spend", "-spend", "team", "-team", "output-price", "-output-price", "cached"])
def test_an_order_is_named_as_the_address_names_it(text: str) -> None:
    found = parse_order(text, ["team"])
    assert found is not None
    assert found.address() == text
    assert found.column == text.removeprefix("-")


def test_the_columns_of_figures_are_those_that_a_report_can_be_ordered_by() -> None:
    assert row_order.FIGURES.keys() == FIGURES


@pytest.mark.parametrize("text", [None, "", "-", "model", "cost_usd", "<script>"])
def test_what_is_no_column_leaves_rows_as_they_are(text: str | None) -> None:
    assert parse_order(text, ["team"]) is None


def test_a_heading_leads_to_its_order_and_then_to_the_other_way_round() -> None:
    asked = next_order("requests", Order("spend"))
    assert asked == Order("requests")
    assert asked.is_falling
    turned = next_order("requests", asked)
    assert turned == Order("requests", is_turned=True)
    assert not turned.is_falling
    assert next_order("requests", turned) == asked
    assert not Order("team").is_falling
