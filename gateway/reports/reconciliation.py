"""Compares our books with a provider's: what differs per day and model, and the likely reason. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum

from gateway.reports.charged import Charged
from gateway.reports.meter_names import may_be
from gateway.reports.tables import apportion

TOLERANCE = 0.005
"""A month should agree within half a per cent."""
ROUNDING_PICO_USD = 10**10
"""One cent, to which bills are rounded."""


class Why(StrEnum):
    """The likely reasons for a difference, in the order they are tried."""

    agrees = "within 0.5%, or a cent"
    not_ours = "not in our books: calls that did not pass this gateway, or other keys of the account"
    not_theirs = "not in their export: it ends too early, the calls were free, or the model has another name there"
    another_name = (
        "less in their bill, but that has meters on the day that we do not know: say with --named which it is"
    )
    next_day = "days are cut differently: together with a neighbouring day it agrees"
    unpriced = "some of our requests have no known price: `breakeven prices reprice`"
    estimated = "within what our estimated requests (cut off, or without usage) may have cost"
    price = "same tokens, other price: a discount, a service tier or a price change that our catalogue lacks"
    tokens = "other tokens: retries or failed calls that are charged, or usage that did not reach us"
    unexplained = "no likely reason: their export has no tokens to compare"


@dataclass(frozen=True, slots=True)
class Ours:
    """Our books for one day and model; the bounds allow for estimated requests."""

    day: date
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_pico_usd: int = 0
    lower_pico_usd: int = 0
    upper_pico_usd: int | None = 0
    unpriced_requests: int = 0
    estimated_requests: int = 0
    web_searches: int = 0
    file_searches: int = 0
    other_tool_calls: int = 0


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One day and model. `difference_pico_usd` is theirs minus ours; None if their export has no dollars."""

    ours: Ours
    theirs: Charged
    difference_pico_usd: int | None
    why: Why


def reconcile(ours: Sequence[Ours], theirs: Sequence[Charged]) -> list[Reconciled]:
    """Every day and model that either side has, in order. Names must already be canonical (see model_key)."""
    own = {(row.day, row.model): row for row in ours}
    other = _with_fees(ours, theirs)
    has_dollars = any(row.cost_pico_usd is not None for row in theirs)
    unknown: dict[date, list[Charged]] = {}
    for key, line in other.items():
        if line.is_meter and key not in own:
            unknown.setdefault(line.day, []).append(line)
    rows: list[Reconciled] = []
    for key in sorted(own.keys() | other.keys()):
        mine = own.get(key, Ours(*key))
        missing = Charged(*key, cost_pico_usd=0 if has_dollars else None)
        row = _compared(mine, other.get(key, missing), is_theirs=key in other, is_ours=key in own)
        beside = unknown.get(mine.day, []) if key in own else []
        # One of them may be this model, or what is missing of it: nobody takes that out.
        if beside and (key not in other or _may_have_more(row, beside)):
            row = replace(row, why=Why.another_name)
        rows.append(row)
    return _with_neighbours(rows)


def _may_have_more(row: Reconciled, meters: Sequence[Charged]) -> bool:
    """Whether a meter that we do not know may be of this model, whose bill comes closer to our books with it."""
    lacks = 0 if row.why is Why.agrees else -(row.difference_pico_usd or 0)
    return lacks > 0 and any(
        0 < (line.cost_pico_usd or 0) < 2 * lacks and may_be(line.model, row.ours.model) for line in meters
    )


def _with_fees(ours: Sequence[Ours], theirs: Sequence[Charged]) -> dict[tuple[date, str], Charged]:
    """Their lines, with the cost of tool calls moved to the models that made them, as in our books."""
    found = {(row.day, row.model): row for row in theirs if row.tool is None}
    for line in theirs:
        for charged in () if line.tool is None else _shared(line, ours):
            key = (charged.day, charged.model)
            before = found.get(key, replace(charged, cost_pico_usd=0))
            found[key] = replace(before, cost_pico_usd=(before.cost_pico_usd or 0) + (charged.cost_pico_usd or 0))
    return found


def _shared(line: Charged, ours: Sequence[Ours]) -> Iterator[Charged]:
    """Splits a tool line by the calls our models made that day, to the pico-dollar; unchanged if none made any."""
    calls = {row.model: int(getattr(row, line.tool or "")) for row in ours if row.day == line.day}
    makers = [model for model, count in calls.items() if count]
    if not makers:
        yield line
        return
    shares = apportion(line.cost_pico_usd or 0, [calls[model] for model in makers])
    for model, share in zip(makers, shares, strict=True):
        yield Charged(line.day, model, share)


def _compared(ours: Ours, theirs: Charged, *, is_ours: bool, is_theirs: bool) -> Reconciled:
    difference = None if theirs.cost_pico_usd is None else theirs.cost_pico_usd - ours.cost_pico_usd
    return Reconciled(ours, theirs, difference, _why(ours, theirs, is_ours=is_ours, is_theirs=is_theirs))


def _why(ours: Ours, theirs: Charged, *, is_ours: bool, is_theirs: bool) -> Why:
    same_tokens = _same_tokens(ours, theirs)
    cost = theirs.cost_pico_usd
    if cost is not None and agrees(ours.cost_pico_usd, cost):
        return Why.agrees
    if cost is None and same_tokens:
        return Why.agrees
    if not is_ours:
        return Why.not_ours
    if not is_theirs:
        return Why.not_theirs
    if ours.unpriced_requests:
        return Why.unpriced
    if ours.estimated_requests and _is_within_bounds(ours, cost):
        return Why.estimated
    if same_tokens is None:
        return Why.unexplained
    return Why.price if same_tokens else Why.tokens


def agrees(ours: int, theirs: int) -> bool:
    """Within the tolerance of the larger, or within a cent."""
    difference = abs(ours - theirs)
    return difference <= ROUNDING_PICO_USD or difference <= TOLERANCE * max(abs(ours), abs(theirs))


def _is_within_bounds(ours: Ours, cost: int | None) -> bool:
    return cost is None or (
        ours.lower_pico_usd <= cost and (ours.upper_pico_usd is None or cost <= ours.upper_pico_usd)
    )


def _same_tokens(ours: Ours, theirs: Charged) -> bool | None:
    """None if their export has no tokens."""
    if theirs.input_tokens is None or theirs.output_tokens is None:
        return None
    pairs = ((ours.input_tokens, theirs.input_tokens), (ours.output_tokens, theirs.output_tokens))
    return all(abs(one - other) <= TOLERANCE * max(one, other) for one, other in pairs)


def _with_neighbours(rows: Sequence[Reconciled]) -> list[Reconciled]:
    """Marks adjacent days that differ by opposite amounts: the sides split the days at different times."""
    by_key: Mapping[tuple[date, str], Reconciled] = {(row.ours.day, row.ours.model): row for row in rows}
    found: list[Reconciled] = []
    for row in rows:
        days = (row.ours.day - timedelta(days=1), row.ours.day + timedelta(days=1))
        beside = [by_key[day, row.ours.model] for day in days if (day, row.ours.model) in by_key]
        if row.why is not Why.agrees and any(_cancel(row, other) for other in beside):
            row = Reconciled(row.ours, row.theirs, row.difference_pico_usd, Why.next_day)
        found.append(row)
    return found


def _cancel(one: Reconciled, other: Reconciled) -> bool:
    if other.why is Why.agrees or one.difference_pico_usd is None or other.difference_pico_usd is None:
        return False
    ours = one.ours.cost_pico_usd + other.ours.cost_pico_usd
    return one.difference_pico_usd * other.difference_pico_usd < 0 and agrees(
        ours, ours + one.difference_pico_usd + other.difference_pico_usd
    )
