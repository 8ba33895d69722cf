"""Numbers as people read them."""

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import display


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("1234.567", "$1,234.57"),
        ("0", "$0.00"),
        ("0.9996", "$1.00"),
        ("0.4381", "$0.438"),
        ("0.0000363", "$0.0000363"),
        ("0.0099996", "$0.0100"),
        ("0.0099949", "$0.00999"),
        ("0.000000000147", "$0.000000000147"),
        ("-12.5", "−$12.50"),
        (None, "–"),
    ],
)
def test_dollars(value: str | None, shown: str) -> None:
    assert display.dollars(value) == shown


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (["22.77", "0.401", "0.91"], ["$22.77", "$0.40", "$0.91"]),
        (["0.00473", "0.0000092", "0"], ["$0.0047300", "$0.0000092", "$0.0000000"]),
        (["12345.67", "0.0004", "-0.0004"], ["$12,345.67", "<$0.01", "−<$0.01"]),
        (["19.65", "unknown", "0.0291", "–"], ["$19.650", "unknown", "$0.029", "–"]),
        (["-5", "0"], ["−$5.00", "$0.00"]),
        (["120", "0.01"], ["$120.00", "$0.01"]),
        (["0.000000000001", "0.00004"], ["<$0.0000000001", "$0.0000400000"]),
        ([], []),
    ],
)
def test_a_column_of_dollars_has_equal_places(texts: list[str], shown: list[str]) -> None:
    assert display.dollar_column(texts) == shown


def test_exact_amounts_below_each_other_have_equal_places() -> None:
    lines = ["0.0002045950", "0.0000087635", "unknown", "-1"]
    assert display.exact_dollar_column(lines) == ["$0.0002045950", "$0.0000087635", "unknown", "−$1.0000000000"]
    assert display.exact_dollar_column(["2", "0"]) == ["$2.00", "$0.00"]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        ("0.2384", "20.3", "$0.24 – $20.30"),
        ("0.0005", "0.0225", "$0.0005 – $0.0225"),
        ("0.0001", "4.15", "<$0.01 – $4.15"),
        ("0", "0", "$0.00 – $0.00"),
    ],
)
def test_both_ends_of_a_range_have_equal_places(low: str, high: str, shown: str) -> None:
    assert display.dollar_range(low, high) == shown


def test_ranges_below_each_other_have_equal_places() -> None:
    """`$0.681 – $0.759` used to stand below `$5.86 – $6.41`."""
    ends = [("5.8612", "6.4133"), (display.UNKNOWN, display.UNKNOWN), ("0.6811", "0.7589"), ("0", "0")]
    assert display.dollar_ranges(ends) == ["$5.86 – $6.41", "–", "$0.68 – $0.76", "$0.00"]


@pytest.mark.parametrize(("text", "shown"), [("0.02", "$0.02"), ("0.03333", "$0.0333"), ("2.5", "$2.50"), (None, "–")])
def test_an_hour_costs_what_was_written(text: str | None, shown: str) -> None:
    assert display.rate(text) == shown


@given(st.lists(st.decimals(-(10**7), 10**7, places=12).map(str), min_size=1))
def test_a_column_shows_nothing_as_zero_that_is_not(texts: list[str]) -> None:
    shown = display.dollar_column([f"{Decimal(one):f}" for one in texts])
    assert len({len(one.rpartition(".")[2]) for one in shown}) == 1
    for text, one in zip(texts, shown, strict=True):
        assert (Decimal(text) == 0) == (set(one) <= set("$0."))


@pytest.mark.parametrize(
    ("requests", "unpriced", "cost", "shown"),
    [
        (3, 0, "0.000000", "$0.00"),
        (3, 3, "0.000000", "unknown"),
        (3, 3, "1.500000", "$1.50"),
        (3, 2, "0.000000", "$0.00"),
        (0, 0, "0.000000", "$0.00"),
    ],
)
def test_a_spend_that_nobody_knows_is_not_nothing(requests: int, unpriced: int, cost: str, shown: str) -> None:
    assert display.spend({"requests": requests, "unpriced_requests": unpriced, "cost_usd": cost}) == shown


@given(st.integers(1, 10**18))
def test_what_is_not_zero_is_never_shown_as_zero(pico: int) -> None:
    assert Decimal(display.dollars(Decimal(pico).scaleb(-12)).replace("$", "").replace(",", "")) > 0


@given(st.integers(-(10**18), 10**18))
def test_exact_dollars_lose_no_digit(pico: int) -> None:
    value = Decimal(pico).scaleb(-12)
    shown = display.exact_dollars(f"{value:f}")
    assert Decimal(shown.replace("$", "").replace(",", "").replace("−", "-")) == value


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (display.tokens(812), "812"),
        (display.tokens(45_100), "45.1 k"),
        (display.tokens(3_200_000), "3.20 M"),
        (display.tokens(999_499), "999 k"),
        (display.tokens(999_500), "1.00 M"),
        (display.tokens(999_999_999), "1.00 G"),
        (display.tokens(1_234_000_000_000), "1,234 G"),
        (display.seconds(0.0421), "42 ms"),
        (display.seconds(1.5), "1.50 s"),
        (display.seconds(300), "5 min"),
        (display.share(0.1234), "12.3 %"),
        (display.share(-0.357), "−35.7 %"),
        (display.share(0.0004), "<0.1 %"),
        (display.share(0.004, places=0), "<1 %"),
        (display.share(0.9996), ">99.9 %"),
        (display.share(0.996, places=0), ">99 %"),
        (display.share(0.0), "0.0 %"),
        (display.share(1.0), "100.0 %"),
        (display.share(1.0004), "100.0 %"),
        (display.speed(61.23), "61.2 tok/s"),
        (display.moment(1_790_000_000_000_000), "21 Sep 2026 14:13:20 UTC"),
        (display.long_moment(1_790_000_000_000_000), "21 Sep 2026 14:13:20"),
        (display.day_of(1_790_000_000_000_000), "21 Sep 2026"),
        (display.exact_dollars(None), "price unknown"),
        (display.hour("2026-11-21T04:00:00Z"), "21 Nov 04:00"),
        (display.group_time("week", "2026-W07"), "Week 7 of 2026"),
        (display.group_time("month", "2026-02"), "February 2026"),
        (display.group_time("quarter", "2026-Q1"), "Q1 2026"),
    ],
)
def test_units(shown: str, expected: str) -> None:
    assert shown == expected


def test_changes_carry_their_sign() -> None:
    assert [display.signed_dollars(one) for one in ("1.2", "-1.2", "0")] == ["+$1.20", "−$1.20", "$0.00"]
    assert [display.signed_share(one) for one in (0.123, -1.5, 0.0)] == ["+12.3 %", "−150.0 %", "+0.0 %"]


@pytest.mark.parametrize("show", [display.count, display.tokens, display.seconds, display.share, display.speed])
def test_what_is_not_known_is_a_dash(show: object) -> None:
    assert callable(show)
    assert show(None) == "–"


def test_a_day_is_the_same_day_wherever_the_machine_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Europe/Berlin", "America/Los_Angeles", "UTC"):
        with monkeypatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            assert display.day("2026-11-21") == "21 Nov 2026"
            assert display.hour("2026-11-21T04:00:00") == "21 Nov 04:00"
            assert display.hour("2026-11-21T04:00:00+02:00") == "21 Nov 02:00"
    time.tzset()
