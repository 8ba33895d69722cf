"""How much one key's judgements count beside the others': no key outvotes the rest. Pure; knows no ledger."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

LARGEST_SHARE = 0.1
"""Of all that keys have said, as it weighs then."""
ALWAYS_HEARD = 100.0
"""So many judgements of a key count in full, however little others say: one who tries it out must not silence the one
application that a deployment has."""
ROUNDING = 1e-9


class Stratum(NamedTuple):
    """Rows that weigh the same, by their places, and the share of the whole that they have together."""

    share: float
    places: list[int]


def most_of_one(weights: Iterable[float]) -> float:
    """The most that one key may weigh, of what each would."""
    ordered = sorted(weights, reverse=True)
    rest = sum(ordered)
    for loud, weight in enumerate(ordered):
        if loud * LARGEST_SHARE >= 1:
            break
        most = LARGEST_SHARE * rest / (1 - loud * LARGEST_SHARE)  # what `loud` keys at the limit leave to the others
        if weight <= most:
            return max(most, ALWAYS_HEARD)
        rest -= weight
    return ALWAYS_HEARD


def factors(votes: Iterable[tuple[str | None, float]]) -> dict[str | None, float]:
    """What the weights of each voter are multiplied by; None, who is no key, is not limited."""
    said: dict[str | None, float] = {}
    for voter, weight in votes:
        said[voter] = said.get(voter, 0.0) + weight
    most = most_of_one(weight for voter, weight in said.items() if voter is not None)
    return {voter: 1.0 if voter is None or weight <= most else most / weight for voter, weight in said.items()}


def outvoted(said: Mapping[str | None, float]) -> list[str]:
    """Keys beside which others have said enough: as it weighs, none of them has more than its share of the whole."""
    keys = {voter: weight for voter, weight in said.items() if voter is not None}
    most = most_of_one(keys.values())
    heard = {voter: min(weight, most) for voter, weight in keys.items()}
    share = LARGEST_SHARE * (sum(heard.values()) + said.get(None, 0.0))
    return [voter for voter, weight in heard.items() if weight <= share * (1 + ROUNDING)]


def strata(voters: Sequence[str | None]) -> list[Stratum]:
    """Each key that is above the limit for itself, and all the others together.

    A single row says nothing of its own spread, so it is left out where there are others.
    """
    if not voters:
        return [Stratum(1.0, [])]
    kept = factors((voter, 1.0) for voter in voters)
    groups: dict[str | None, list[int]] = {}
    for place, voter in enumerate(voters):
        groups.setdefault(voter if kept[voter] < 1 else None, []).append(place)
    judged = {voter: places for voter, places in groups.items() if len(places) > 1} or groups
    weights = {voter: len(places) * (1.0 if voter is None else kept[voter]) for voter, places in judged.items()}
    whole = sum(weights.values())
    return [Stratum(weights[voter] / whole, places) for voter, places in judged.items()]
