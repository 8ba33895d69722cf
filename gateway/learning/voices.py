"""Limits the weight of one key's judgements, so that no key outvotes the others. Pure; knows no ledger."""

from collections.abc import Iterable, Mapping

LARGEST_SHARE = 0.1
"""Of the total after limiting."""
ALWAYS_HEARD = 100.0
"""This many judgements of a key always count in full, however few the others give: someone trying things out must not
silence a deployment's only application."""
ROUNDING = 1e-9


def most_of_one(weights: Iterable[float]) -> float:
    """The largest weight any key may have, given the unlimited weights of all keys."""
    ordered = sorted(weights, reverse=True)
    rest = sum(ordered)
    for loud, weight in enumerate(ordered):
        if loud * LARGEST_SHARE >= 1:
            break
        most = LARGEST_SHARE * rest / (1 - loud * LARGEST_SHARE)  # the limit if it cuts the `loud` heaviest keys
        if weight <= most:
            return max(most, ALWAYS_HEARD)
        rest -= weight
    return ALWAYS_HEARD


def factors(votes: Iterable[tuple[str | None, float]]) -> dict[str | None, float]:
    """The factor on each voter's weights; None, which is no key, is not limited."""
    said: dict[str | None, float] = {}
    for voter, weight in votes:
        said[voter] = said.get(voter, 0.0) + weight
    most = most_of_one(weight for voter, weight in said.items() if voter is not None)
    return {voter: 1.0 if voter is None or weight <= most else most / weight for voter, weight in said.items()}


def outvoted(said: Mapping[str | None, float]) -> list[str]:
    """Keys beside which others have said enough: after limiting, none exceeds its allowed share."""
    keys = {voter: weight for voter, weight in said.items() if voter is not None}
    most = most_of_one(keys.values())
    heard = {voter: min(weight, most) for voter, weight in keys.items()}
    share = LARGEST_SHARE * (sum(heard.values()) + said.get(None, 0.0))
    return [voter for voter, weight in heard.items() if weight <= share * (1 + ROUNDING)]
