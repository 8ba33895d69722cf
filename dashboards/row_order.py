"""The order of the explorer's rows, as its address names it: a column, or `-` and a column for the other way. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]
Value = Decimal | float | str


def _dollars(name: str) -> Callable[[Row], Decimal | None]:
    return lambda row: None if row[name] is None else Decimal(row[name])


FIGURES: Mapping[str, Callable[[Row], Decimal | float | None]] = {
    "spend": _dollars("cost_usd"),
    "requests": lambda row: row["requests"],
    "input": lambda row: row["input_tokens"],
    "cached": lambda row: row["cached_input_tokens"] / row["input_tokens"] if row["input_tokens"] else None,
    "output": lambda row: row["output_tokens"],
    "input-price": _dollars("input_usd_per_mtok"),
    "output-price": _dollars("output_usd_per_mtok"),
    "request-price": _dollars("cost_per_request_usd"),
}
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


def in_order(rows: Sequence[Row], order: Order, name_of: Callable[[str, str], str]) -> list[Row]:
    """Unknown values and groups without a name stand last, whichever way. `name_of` is what a group is called."""

    def value_of(row: Row) -> Value | None:
        if (figure := FIGURES.get(order.column)) is not None:
            return figure(row)
        value = row["group"][order.column]
        return name_of(order.column, value).casefold() if value else None

    known: list[tuple[Any, Row]] = [(value, row) for row in rows if (value := value_of(row)) is not None]
    known.sort(key=lambda one: one[0], reverse=order.is_falling)
    return [*(row for _, row in known), *(row for row in rows if value_of(row) is None)]
