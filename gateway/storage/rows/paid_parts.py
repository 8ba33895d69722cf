"""The parts of a request's cost that are on another bill than its answer's, for the sums. Pure.

The request's entry has its whole cost. Sums by provider, backend or model show the cost of each attempt where it was
billed.
"""

from typing import NamedTuple

from gateway.ledger.entry import Entry
from gateway.storage.rows.bounded import clean, money
from gateway.storage.rows.dimension import Dimension, dimension_of


class PaidPart(NamedTuple):
    """`upper` is None if unknown; `upper_of_entry` is the part of it that the entry's own upper bound includes."""

    dimension: Dimension
    cost_pico_usd: int
    lower_pico_usd: int
    upper_pico_usd: int | None
    upper_of_entry_pico_usd: int


def paid_parts(entry: Entry) -> list[PaidPart]:
    """Empty if the request's cost is unknown: then no cost of it is in the sums."""
    if entry.cost is None or not any(one.paid_to for one in entry.attempts):
        return []
    own = dimension_of(entry)
    found: list[PaidPart] = []
    for one in entry.attempts:
        paid, cost = one.paid_to, money(one.cost_pico_usd)
        if paid is None or not cost:
            continue
        dimension = own._replace(
            model=clean(one.model),
            backend=clean(one.backend),
            provider=clean(paid.provider),
            upstream_model=clean(paid.upstream_model),
            is_simulated=paid.is_simulated,
        )
        upper = money(paid.upper_pico_usd)
        upper_of_entry = 0 if upper is None or entry.cost_upper_pico_usd is None else upper
        found.append(PaidPart(dimension, cost, money(paid.lower_pico_usd) or 0, upper, upper_of_entry))
    return found
