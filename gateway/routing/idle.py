"""Whether a deferrable request should wait, because the model it would go to is busy. Pure."""

from collections.abc import Callable

import msgspec

from gateway.routing.decide import decide
from gateway.routing.snapshot import RequestFacts, Snapshot


def awaits_a_busy_model(request: RequestFacts, snapshot: Snapshot, left_free: Callable[[str], int]) -> bool:
    """True if the model that would be chosen with room everywhere has no more free slots than must be left to others:
    `left_free` gives that number per model. Raises as `decide`."""
    facts = request.facts
    busy = {name for name, (slots, _) in facts.backend_state.items() if 0 <= slots <= left_free(name)}
    if not busy:
        return False
    idle = msgspec.structs.replace(facts, backend_state={**facts.backend_state, **dict.fromkeys(busy, (1, 0.0))})
    return decide(msgspec.structs.replace(request, facts=idle), snapshot).decision.model in busy
