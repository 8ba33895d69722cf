"""What a provider charges for one of its models on one day, and how such lines add up. Knows no format of an export."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

from gateway.money import PICO_PER_USD

MOST_DOLLARS = 10**9
Tool = Literal["web_searches", "file_searches", "other_tool_calls"]
"""As the books count them."""


class UnknownExport(ValueError):
    """The text is not a supported export, or a line is malformed; the message says which."""


@dataclass(frozen=True, slots=True)
class Charged:
    """One provider's model on one UTC day. `model` is the provider's name for it, empty if it gives none. For calls of
    the provider's own tools, `model` is the tool's name and `tool` is what the books count them as. With `is_meter`,
    `model` is the name of a cloud's meter, which has the model's in it. `is_left_out`: it is for no model, and
    `model` says for what."""

    day: date
    model: str
    cost_pico_usd: int | None = None
    requests: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool: Tool | None = None
    is_meter: bool = False
    is_left_out: bool = False


Line = tuple[date | None, Charged | None]
"""The day that a line shows to be covered, if it does, and what it charges, if anything."""


def model_key(name: str) -> str:
    """Canonical spelling of a model: lower case, dashes, without the snapshot date."""
    dashed = re.sub(r"[ ._]+", "-", name.strip().lower())
    return re.sub(r"-(20\d{6}|20\d\d-\d\d-\d\d|latest)$", "", dashed)


def pico_of(amount: Any, unit: int = PICO_PER_USD) -> int:
    """Rounds half to even if a provider is finer than a pico-dollar. Raises UnknownExport."""
    try:
        number = Decimal(str(amount))
    except InvalidOperation as error:
        problem = f"{amount!r} is not an amount such as 1234.56; if a spreadsheet saved the file, take the original one"
        raise UnknownExport(problem) from error
    if not number.is_finite() or abs(number) >= MOST_DOLLARS:
        raise UnknownExport(f"nobody is charged {amount} in a day")
    return round(number * unit)


def added_up(lines: Iterable[Charged]) -> tuple[Charged, ...]:
    """One line for each day and canonical name, in that order."""
    sums: dict[tuple[date, str], Charged] = {}
    for line in lines:
        key = (line.day, model_key(line.model))
        sums[key] = line if key not in sums else _plus(sums[key], line)
    return tuple(replace(sums[key], model=key[1]) for key in sorted(sums))


def left_out(lines: Iterable[Charged]) -> dict[str, int | None]:
    """What is charged for other things, in pico-USD, by what they are; None if it is not known in USD."""
    costs: dict[str, list[int | None]] = {}
    for line in lines:
        costs.setdefault(line.model, []).append(line.cost_pico_usd)
    sums = {what: None if None in known else sum(filter(None, known)) for what, known in sorted(costs.items())}
    return {what: cost for what, cost in sums.items() if cost != 0}


def _plus(one: Charged, other: Charged) -> Charged:
    names = ("cost_pico_usd", "requests", "input_tokens", "output_tokens")
    return replace(one, **{name: _sum(getattr(one, name), getattr(other, name)) for name in names})


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other
