"""Shares load among equally good models, above all engines that serve the same one. Pure.

Warm prefixes are worth following, but not to an engine that is much busier: the wait there would cost more than it
saves, and a prefix common to all prompts would keep them all on one engine.
"""

import zlib
from typing import Protocol, TypeVar

from gateway.ledger.entry import Facts
from gateway.routing.snapshot import Candidate


class Weighed(Protocol):
    """A model with figures that do not matter here."""

    @property
    def candidate(self) -> Candidate: ...


Model = TypeVar("Model", bound=Weighed)


def share_load(models: list[Model], facts: Facts) -> tuple[list[Model], int]:
    """The models in the order to try them, and how many at its head were ranked by the request's random draw alone.

    Models with less than half of the most free slots come last; then the order is by warm prompt tokens, free slots,
    queueing time, and chance.
    """
    drawn = zlib.crc32(f"{facts.draw} ".encode())  # once for all: a float's text costs more than all the rest
    by_chance = sorted(models, key=lambda one: zlib.crc32(one.candidate.name.encode(), drawn))
    if not (facts.backend_state or facts.warm_tokens):
        return by_chance, len(by_chance)
    names = [one.candidate.name for one in by_chance]
    states = {name: facts.backend_state.get(name, (0, 0.0)) for name in names}
    most = max(slots for slots, _ in states.values())
    places = {
        name: (2 * slots < most, -facts.warm_tokens.get(name, 0), -slots, queue_seconds)
        for name, (slots, queue_seconds) in states.items()
    }
    ordered = sorted(by_chance, key=lambda one: places[one.candidate.name])
    return ordered, list(places.values()).count(places[ordered[0].candidate.name])
