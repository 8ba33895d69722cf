"""Whether a request that can wait should: where it would go, were the busy ones free. Pure."""

from collections.abc import Callable

import msgspec

from gateway.routing.decide import decide
from gateway.routing.snapshot import RequestFacts, Snapshot


def awaits_a_busy_model(request: RequestFacts, snapshot: Snapshot, left_free: Callable[[str], int]) -> bool:
    """True where the model that would be chosen if all had room has no more free slots now than are to be left to
    others: `left_free` tells how many of a model's. Raises as `decide`."""
    facts = request.facts
    busy = {name for name, (slots, _) in facts.backend_state.items() if 0 <= slots <= left_free(name)}
    if not busy:
        return False
    idle = msgspec.structs.replace(facts, backend_state={**facts.backend_state, **dict.fromkeys(busy, (1, 0.0))})
    return decide(msgspec.structs.replace(request, facts=idle), snapshot).decision.model in busy
