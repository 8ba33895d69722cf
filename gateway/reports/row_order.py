"""The order of a cost report's groups: by a figure or a dimension; a leading `-` reverses it. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gateway.sums import Dimension, Sums

Group = tuple[str | None, ...]
Value = int | Fraction | str


@dataclass(frozen=True, slots=True)
class Priced:
    """A group with the sums that its unit prices divide: see cost_rows.py."""

    sums: Sums
    known: Sums | None = None
    by_token: Sums | None = None


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


def _input_price(one: Priced) -> Fraction | None:
    of = one.by_token or Sums({})
    return _ratio(of.input_pico_usd + of.cached_input_pico_usd + of.cache_write_pico_usd, of.input_tokens)


def _output_price(one: Priced) -> Fraction | None:
    of = one.by_token or Sums({})
    return _ratio(of.output_pico_usd, of.output_tokens)


FIGURES: Mapping[str, Callable[[Priced], int | Fraction | None]] = {
    "spend": lambda one: one.sums.corrected_cost_pico_usd,
    "requests": lambda one: one.sums.requests,
    "input": lambda one: one.sums.input_tokens,
    "cached": lambda one: _ratio(one.sums.cached_input_tokens, one.sums.input_tokens),
    "output": lambda one: one.sums.output_tokens,
    "input-price": _input_price,
    "output-price": _output_price,
    "request-price": lambda one: _ratio(one.sums.corrected_cost_pico_usd, one.known.requests) if one.known else None,
}
"""Figures to order by, largest first; prices are those of the row's column of that name."""
OF_PRICES = frozenset({"input-price", "output-price", "request-price"})


def is_order(text: str, by: Iterable[str]) -> bool:
    """Whether `text` is a valid order for groups by these dimensions."""
    return text.removeprefix("-") in {*FIGURES, *by}


def in_order(
    groups: Sequence[Priced], text: str, by: Sequence[Dimension], name_of: Callable[[str], str]
) -> list[Priced]:
    """Unknown values and groups without a name come last in either direction; the sort is stable. `name_of` gives the
    display name of a key."""
    column, is_turned = text.removeprefix("-"), text.startswith("-")

    def value_of(one: Priced) -> Value | None:
        if (figure := FIGURES.get(column)) is not None:
            return figure(one)
        value = one.sums.group[by[by.index(column)]]
        if not value:
            return None
        return (name_of(value) if column == "key" else value).casefold()

    known = [(value, one) for one in groups if (value := value_of(one)) is not None]
    known.sort(key=lambda pair: pair[0], reverse=(column in FIGURES) != is_turned)
    return [*(one for _, one in known), *(one for one in groups if value_of(one) is None)]
