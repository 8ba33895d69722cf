"""The state of the replayed world: by how many slots engines are busier or freer than the log says.

While every decision matches the log, the logged facts hold and nothing is simulated, which makes a replay under the
logged rules exact.
"""

import heapq

import msgspec

from gateway.economics.replay.log import LoggedRequest
from gateway.ledger.entry import Facts


class SlotChanges:
    """When requests that moved to or away from an engine would have released its slots."""

    def __init__(self) -> None:
        self._ends_us: dict[str, tuple[list[int], list[int]]] = {}

    def move(self, logged: LoggedRequest, to: str, residence_seconds: float) -> None:
        now, limited = logged.served.at_us, logged.facts.backend_state
        if logged.model in limited:  # models that report no slots cannot run out of them
            heapq.heappush(self._heaps(logged.model)[0], now + round(logged.total_seconds * 1e6))
        if to in limited:
            heapq.heappush(self._heaps(to)[1], now + round(residence_seconds * 1e6))

    def facts_for(self, logged: LoggedRequest) -> Facts:
        """The logged facts as this world would have seen them; the same object if nothing differs."""
        facts, changed = logged.facts, dict[str, tuple[int, float]]()
        for model, (free, wait) in facts.backend_state.items():
            freed = self._freed(model, logged.served.at_us) if free >= 0 else 0
            if freed:
                changed[model] = (max(0, free + freed), wait if free + freed <= 0 else 0.0)
        return msgspec.structs.replace(facts, backend_state={**facts.backend_state, **changed}) if changed else facts

    def _freed(self, model: str, now_us: int) -> int:
        """How many more slots are free than logged; negative: fewer."""
        heaps = self._ends_us.get(model)
        if heaps is None:
            return 0
        for heap in heaps:
            while heap and heap[0] <= now_us:
                heapq.heappop(heap)
        return len(heaps[0]) - len(heaps[1])

    def _heaps(self, model: str) -> tuple[list[int], list[int]]:
        return self._ends_us.setdefault(model, ([], []))
