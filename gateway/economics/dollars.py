"""The only place where the model's floats become money: decimal dollars, to the pico-dollar."""

from decimal import Decimal

from gateway.economics.demand import PICO
from gateway.money import plain, usd


def to_usd(dollars: float) -> Decimal:
    """A float of the model, rounded to a pico-dollar."""
    return plain_usd(round(dollars * PICO))


def plain_usd(pico: int) -> Decimal:
    """Exact, without trailing zeros of the twelve decimal places."""
    return Decimal(plain(usd(pico)))
