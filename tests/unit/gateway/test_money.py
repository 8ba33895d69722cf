from decimal import Decimal

import pytest

from gateway.money import format_usd, parse_usd, show_exact_usd, show_usd


@pytest.mark.parametrize(
    ("pico", "text"),
    [(0, "0.000000000000"), (1, "0.000000000001"), (29_400_000_000, "0.029400000000"), (-5, "-0.000000000005")],
)
def test_text_is_exact_and_never_in_exponents(pico: int, text: str) -> None:
    assert format_usd(pico) == text
    assert parse_usd(text) == pico


def test_rounding_for_show_is_half_even() -> None:
    assert format_usd(1_250_000_000_00, places=2) == "0.12"
    assert format_usd(1_350_000_000_00, places=2) == "0.14"


@pytest.mark.parametrize("text", ["0.0000000000001", "1e-13", Decimal("0.1") + Decimal("1e-20")])
def test_finer_than_a_pico_dollar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="finer"):
        parse_usd(text)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("1234.567", "$1,234.57"),
        ("0", "$0.00"),
        ("0.000000000000", "$0.00"),
        ("0.9996", "$1.00"),
        ("0.0261", "$0.0261"),
        ("-0.02614", "-$0.0261"),
        ("0.000000000001", "$0.000000000001"),
        (Decimal("-171.64"), "-$171.64"),
    ],
)
def test_for_the_eye_only_nothing_is_shown_as_nothing(amount: str | Decimal, text: str) -> None:
    assert show_usd(amount) == text


def test_the_sign_of_an_exact_amount_stands_before_the_dollar() -> None:
    assert show_exact_usd("-26.790000000001") == "-$26.790000000001"
    assert show_exact_usd("0.100000000000") == "$0.100000000000"
