"""Money is integer pico-USD (1e-12 USD) inside and decimal text at the borders; it is never a float."""

from decimal import ROUND_HALF_EVEN, Decimal

PICO_PER_USD = 10**12
PICO_PER_TOKEN_AT_USD_PER_MTOK = 10**6
"""One dollar per million tokens is a million pico-dollars per token."""
MOST_USD = 9_000_000
"""The largest amount that may be given: the books keep pico-dollars in 64 bits, which hold 9.2 million dollars."""


def parse_usd(text: str | int | Decimal) -> int:
    """Decimal dollars to pico-USD. Raises ValueError for anything finer than a pico-dollar, which suggests a float."""
    pico = Decimal(text) * PICO_PER_USD
    if pico != pico.to_integral_value():
        raise ValueError(f"{text} USD is finer than one pico-dollar")
    return int(pico)


def usd(pico: int) -> Decimal:
    """Pico-USD as exact decimal dollars."""
    return Decimal(pico).scaleb(-12)


def format_usd(pico: int, *, places: int = 12) -> str:
    """Decimal text of a pico-USD amount, `$`-less; rounded half-even only when `places` is below 12."""
    return f"{usd(pico).quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN):f}"


def known_usd(pico: int | None) -> str | None:
    """As `format_usd`; what is unknown stays so."""
    return None if pico is None else format_usd(pico)


def plain(value: Decimal | str) -> str:
    """Exact decimal text without exponent or trailing zeros."""
    text = f"{Decimal(value):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def show_usd(amount: Decimal | str) -> str:
    """For display, `$1,234.56`. Amounts below a dollar keep three significant digits, so that only zero is shown as
    zero."""
    value = Decimal(amount)
    places = 2 if abs(value) >= Decimal("0.9995") or not value else min(12, 2 - value.adjusted())
    return show_exact_usd(value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN), separator=",")


def show_exact_usd(amount: Decimal | str, *, separator: str = "") -> str:
    """For display, with every digit it has; the sign stands before the `$`."""
    value = Decimal(amount)
    return f"{'-' if value < 0 else ''}${abs(value):{separator}f}"
