"""The parts of a request's cost that stand on another bill than its answer's, as the sums take them. Pure.

The request's entry holds every dollar of it. Sums by provider, backend or model show each attempt's where it was paid.
"""

from typing import NamedTuple

from gateway.ledger.entry import Entry
from gateway.storage.rows.bounded import clean, money
from gateway.storage.rows.dimension import Dimension, dimension_of


class PaidPart(NamedTuple):
    """`upper` None: not known. `upper_of_entry` is how much of it the entry's own upper bound holds."""

    dimension: Dimension
    cost_pico_usd: int
    lower_pico_usd: int
    upper_pico_usd: int | None
    upper_of_entry_pico_usd: int


def paid_parts(entry: Entry) -> list[PaidPart]:
    """None of a request whose cost is not known: nothing of it is in the sums."""
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
