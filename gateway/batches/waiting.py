"""When a line of a batch may be asked: not while the model it should go to is busy. Knows no storage."""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final

from gateway.access.keys import KeyRecord
from gateway.batches.asking import incoming
from gateway.batches.lines import Line
from gateway.batches.values import Batch
from gateway.errors import RequestError
from gateway.request.facts import request_facts
from gateway.request.view import RequestView, parse_request
from gateway.routing.decide import Choice
from gateway.routing.idle import awaits_a_busy_model
from gateway.routing.snapshot import Snapshot

UNSEEN_SECONDS: Final = 1.0
"""For this long after its start a line may be missing from its backend's load."""


class Waiting:
    """Deferrable requests should neither take an engine's last free slots nor go to a more expensive model because
    others have them. A line holds its slot until answered, so a share of all slots is left free: at an almost full
    engine one is free for a moment now and then, which the next caller needs."""

    def __init__(
        self,
        decide: Callable[[RequestView, KeyRecord, tuple[str, ...]], Choice],
        snapshot: Callable[[], Snapshot],
        key_of: Callable[[str], KeyRecord],
        slots: Callable[[str], int | None],
        *,
        leave_free_share: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._decide = decide
        self._snapshot = snapshot
        self._key_of = key_of
        self._slots = slots
        self._leave_free_share = leave_free_share
        self._monotonic = monotonic
        self._begun: deque[float] = deque()

    def should_wait(self, batch: Batch, line: Line) -> bool:
        """False means that the line starts now."""
        now = self._monotonic()
        while self._begun and self._begun[0] <= now - UNSEEN_SECONDS:
            self._begun.popleft()
        if self._awaits(batch, line):
            return True
        self._begun.append(now)
        return False

    def _awaits(self, batch: Batch, line: Line) -> bool:
        asked = incoming(batch, line)
        try:
            key = self._key_of(batch.key_id)
            view = parse_request(asked.operation, asked.body)
            facts = self._decide(view, key, asked.tags).decision.facts
            request = request_facts(view, key, asked.tags, facts)
            return awaits_a_busy_model(request, self._snapshot(), self._left_free)
        except RequestError:
            return False  # it gets the error when it is asked

    def _left_free(self, model: str) -> int:
        """Slots to leave free, plus lines that this process has started and the load does not show yet."""
        candidate = self._snapshot().candidates.get(model)
        slots = None if candidate is None else self._slots(candidate.backend)
        return (0 if slots is None else left_free(slots, self._leave_free_share)) + len(self._begun)


def left_free(slots: int, share: float) -> int:
    """Of `slots` slots in total."""
    return ceil(slots * share)
