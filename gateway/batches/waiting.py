"""When a line of a batch is asked: while the model that it should go to is busy, it waits. Knows no storage."""

from collections import deque
from collections.abc import Callable
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
"""So long after it was begun a line may not yet be counted among what runs at its backend."""


class Waiting:
    """So that requests that can wait neither take the last free slots of an engine from those who cannot, nor go to a
    dearer place because others have them. `leave_free` is how many slots are left."""

    def __init__(
        self,
        decide: Callable[[RequestView, KeyRecord, tuple[str, ...]], Choice],
        snapshot: Callable[[], Snapshot],
        key_of: Callable[[str], KeyRecord],
        *,
        leave_free: int,
        monotonic: Callable[[], float],
    ) -> None:
        self._decide = decide
        self._snapshot = snapshot
        self._key_of = key_of
        self._leave_free = leave_free
        self._monotonic = monotonic
        self._begun: deque[float] = deque()

    def should_wait(self, batch: Batch, line: Line) -> bool:
        """False means that it begins now."""
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
            return awaits_a_busy_model(request, self._snapshot(), leave_free=self._leave_free + len(self._begun))
        except RequestError:
            return False  # it is told so when it is asked
