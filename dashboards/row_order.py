"""The order of the explorer's rows, as its address and the gateway's report name it: a column, or `-` and a column for
the other way. Pure; the gateway puts them in it."""

from collections.abc import Sequence
from dataclasses import dataclass

FIGURES = frozenset({"spend", "requests", "input", "cached", "output", "input-price", "output-price", "request-price"})
"""Columns of figures: the largest first."""


@dataclass(frozen=True, slots=True)
class Order:
    """Figures fall and names rise, unless it `is_turned`."""

    column: str
    is_turned: bool = False

    @property
    def is_falling(self) -> bool:
        return (self.column in FIGURES) != self.is_turned

    def address(self) -> str:
        return f"-{self.column}" if self.is_turned else self.column


def parse_order(text: str | None, by: Sequence[str]) -> Order | None:
    """None where nothing, or no column, is named: then rows stand as the report has them."""
    column = (text or "").removeprefix("-")
    return Order(column, (text or "").startswith("-")) if column in FIGURES or column in by else None


def next_order(column: str, now: Order) -> Order:
    """What the heading of a column leads to: its own order, and from there the other way round."""
    return Order(column, is_turned=now == Order(column))
