"""Models that are equally good, two engines that serve the same one above all, share the load. Pure.

What a prompt finds warm is worth following, but not to an engine that is much busier: there the wait would cost more
than it saves, and a beginning that all prompts have in common would keep all of them on one engine.
"""

import zlib
from collections.abc import Sequence

from gateway.ledger.entry import Facts


def share_load(names: Sequence[str], facts: Facts) -> tuple[list[str], int]:
    """The names in the order in which to try them, and how many at its head are there by the request's draw alone.

    Whoever has less than half of the free slots of another comes last; then counts how much of the prompt is warm,
    how many slots are free, how long is waited for one, and chance.
    """
    states = {name: facts.backend_state.get(name, (0, 0.0)) for name in names}
    most = max(slots for slots, _ in states.values())
    places = {
        name: (2 * slots < most, -facts.warm_tokens.get(name, 0), -slots, queue_seconds)
        for name, (slots, queue_seconds) in states.items()
    }
    ordered = sorted(names, key=lambda name: (places[name], zlib.crc32(f"{facts.draw} {name}".encode())))
    return ordered, sum(place == places[ordered[0]] for place in places.values())
