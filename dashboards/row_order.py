"""The order of the explorer's rows, as written in its address and in the gateway's query: a column, or `-` and a column
for the reverse. Pure; the gateway sorts them."""

from collections.abc import Sequence
from dataclasses import dataclass

FIGURES = frozenset({"spend", "requests", "input", "cached", "output", "input-price", "output-price", "request-price"})
"""Columns of figures, which are sorted with the largest first."""


@dataclass(frozen=True, slots=True)
class Order:
    """Descending for figures and ascending for names; the reverse if `is_turned`."""

    column: str
    is_turned: bool = False

    @property
    def is_falling(self) -> bool:
        return (self.column in FIGURES) != self.is_turned

    def address(self) -> str:
        return f"-{self.column}" if self.is_turned else self.column


def parse_order(text: str | None, by: Sequence[str]) -> Order | None:
    """None if the text names no column: rows then keep the report's own order."""
    column = (text or "").removeprefix("-")
    return Order(column, (text or "").startswith("-")) if column in FIGURES or column in by else None


def next_order(column: str, now: Order) -> Order:
    """The order that a column's heading leads to: by that column, or the reverse if the rows are in that order now."""
    return Order(column, is_turned=now == Order(column))
