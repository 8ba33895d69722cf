"""Shares load among equally good models, above all engines that serve the same one. Pure.

Warm prefixes are worth following, but not to an engine that is much busier: the wait there would cost more than it
saves, and a prefix common to all prompts would keep them all on one engine.
"""

import zlib
from collections.abc import Callable, Sequence

from gateway.ledger.entry import Facts


def share_load(names: Sequence[str], facts: Facts) -> tuple[list[str], int]:
    """The names in the order to try them, and how many at its head were ranked by the request's random draw alone.

    Models with less than half of the most free slots come last; then the order is by warm prompt tokens, free slots,
    queueing time, and chance.
    """
    chance = _chances(facts)
    if not (facts.backend_state or facts.warm_tokens):
        return sorted(names, key=chance), len(names)
    states = {name: facts.backend_state.get(name, (0, 0.0)) for name in names}
    most = max(slots for slots, _ in states.values())
    places = {
        name: (2 * slots < most, -facts.warm_tokens.get(name, 0), -slots, queue_seconds)
        for name, (slots, queue_seconds) in states.items()
    }
    ordered = sorted(names, key=lambda name: (places[name], chance(name)))
    return ordered, list(places.values()).count(places[ordered[0]])


def _chances(facts: Facts) -> Callable[[str], int]:
    """The checksum of the draw and a name. The draw is written once: a float's text costs more than all the rest."""
    drawn = zlib.crc32(f"{facts.draw} ".encode())
    return lambda name: zlib.crc32(name.encode(), drawn)
