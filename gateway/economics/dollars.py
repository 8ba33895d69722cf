"""The one border where the model's floats become money: decimal dollars, to the pico-dollar."""

from decimal import Decimal

from gateway.economics.demand import PICO
from gateway.money import usd


def to_usd(dollars: float) -> Decimal:
    """A figure of the model."""
    return plain_usd(round(dollars * PICO))


def plain_usd(pico: int) -> Decimal:
    """Exact, without the trailing zeros that twelve places leave in text."""
    return Decimal(f"{usd(pico).normalize():f}")
