"""Converts LiteLLM's budgets (an amount per period) to our windows. Pure."""

import re
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final

from gateway.limits.values import WindowName
from gateway.money import MOST_USD

WORDS: Final = {"hourly": "1h", "daily": "24h", "weekly": "7d", "monthly": "30d"}
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
DAY: Final = 86_400
MONTH_DAYS: Final = 30
"""LiteLLM counts 30 days as a month, which begins on the first."""
PLACES: Final = Decimal("1E-12")
CENT: Final = Decimal("0.01")
MOST: Final = Decimal(MOST_USD)
"""The most the books can sum: a larger budget could never be used up."""


@dataclass(frozen=True, slots=True)
class Window:
    """One of our windows, and which share of an amount goes into it: in proportion to the lengths of the periods."""

    name: WindowName
    share: Fraction = Fraction(1)

    def amount(self, usd: Decimal) -> Decimal:
        """A share is rounded down, to the cent."""
        if self.share == 1:
            return min(usd, MOST)
        exact = usd * self.share.numerator / self.share.denominator
        return min(exact.quantize(CENT, ROUND_DOWN), MOST)


def window_of(duration: str | None) -> Window:
    """As LiteLLM reads it: 1d begins at midnight UTC, 30d and 1mo on the first of the month. What it cannot read is a
    day; without a duration the amount is for ever."""
    if not duration:
        return Window("total")
    found = re.match(r"(\d+)(mo|[smhdw])", WORDS.get(duration.strip().lower(), duration))
    number = int(found[1]) if found is not None else 0
    if found is None or number == 0:
        return Window("day")
    if found[2] == "mo":
        return Window("month", Fraction(1, number))
    seconds = number * SECONDS[found[2]]
    if seconds <= DAY:
        return Window("day", Fraction(DAY, seconds))
    return Window("month", Fraction(MONTH_DAYS * DAY, seconds))


def read_usd(value: object) -> Decimal | None:
    """From a column of floats: the shortest decimal for the float, with at most 12 places. None means no limit, and so
    does an infinite amount."""
    if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
        return None
    usd = value if isinstance(value, Decimal) else Decimal(str(value))
    if not usd.is_finite():
        return None
    return max(Decimal(0), min(usd, MOST * 1000)).quantize(PLACES, ROUND_HALF_EVEN)
