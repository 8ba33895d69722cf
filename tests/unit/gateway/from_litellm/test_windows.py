"""LiteLLM's durations as windows of ours: what is another length keeps its rate, and is never more."""

from decimal import Decimal
from fractions import Fraction

import pytest

from gateway.from_litellm.windows import MOST, Window, read_usd, window_of
from gateway.money import plain


@pytest.mark.parametrize(
    ("duration", "window"),
    [
        (None, Window("total")),
        ("", Window("total")),
        ("1d", Window("day")),
        ("24h", Window("day")),
        ("daily", Window("day")),
        ("86400s", Window("day")),
        ("30d", Window("month")),
        ("1mo", Window("month")),
        ("Monthly", Window("month")),
        ("7d", Window("month", Fraction(30, 7))),
        ("1w", Window("month", Fraction(30, 7))),
        ("weekly", Window("month", Fraction(30, 7))),
        ("90d", Window("month", Fraction(1, 3))),
        ("3mo", Window("month", Fraction(1, 3))),
        ("1h", Window("day", Fraction(24))),
        ("30m", Window("day", Fraction(48))),
        ("every day", Window("day")),
        ("0d", Window("day")),
    ],
)
def test_a_duration_has_a_window(duration: str | None, window: Window) -> None:
    assert window_of(duration) == window


def test_a_share_is_rounded_down_to_the_cent_and_a_whole_is_as_it_is() -> None:
    assert window_of("7d").amount(Decimal(10)) == Decimal("42.85")
    assert window_of("30d").amount(Decimal("0.123456")) == Decimal("0.123456")
    assert window_of("1h").amount(MOST) == window_of("1d").amount(MOST * 2) == MOST


@pytest.mark.parametrize(
    ("column", "usd"),
    [
        (None, None),
        ("Infinity", None),
        (float("inf"), None),
        (True, None),
        (0, "0"),
        (-3, "0"),
        (Decimal("100.1"), "100.1"),
        (0.1 + 0.2, "0.3"),
        (Decimal("0.30000000000000004"), "0.3"),
        (Decimal("1e-7"), "0.0000001"),
        (12, "12"),
        (Decimal("1e300"), "9000000000"),
        (Decimal("-1e30"), "0"),
    ],
)
def test_a_column_of_floats_is_the_decimal_that_it_was_written_as(column: object, usd: str | None) -> None:
    found = read_usd(column)
    assert (None if found is None else plain(found)) == usd
