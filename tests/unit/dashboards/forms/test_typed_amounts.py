"""Dollars as people type them."""

import pytest

from dashboards.forms.typed_amounts import typed_usd


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        (None, ""),
        (" ", ""),
        ("2500", "2500"),
        ("$ 1,500.50", "1500.50"),
        ("1,000,000", "1000000"),
        ("12.50", "12.50"),
        ("1e3", "1e3"),
    ],
)
def test_commas_part_thousands(text: str | None, amount: str) -> None:
    assert typed_usd(text, "amount") == amount


@pytest.mark.parametrize("text", ["12,50", "1500,5", "1.500,00", "1,5", ",50", "1,0000", "0012,345"])
def test_a_comma_that_parts_no_thousands_is_refused(text: str) -> None:
    """12,50 used to become a budget of $1,250."""
    with pytest.raises(ValueError, match="cents after a point"):
        typed_usd(text, "amount")
