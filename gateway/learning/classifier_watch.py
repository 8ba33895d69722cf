"""Alarms about the classifier: traffic that has drifted, and predictions that feedback contradicts.

Only counts and reports. It uses this worker's traffic and all workers' feedback since the start; no single key raises
an alarm if others have said enough (see gateway.learning.judged_model).
"""

import logging
from collections.abc import Callable
from typing import Protocol

from classifier.online.alarms import DriftMonitor, build_reference
from gateway.learning.correction import IMPLIED, Judged, routed
from gateway.learning.judged_model import JudgedModel
from gateway.ledger.entry import Entry
from gateway.stores import EntryStore, Feedback, FeedbackStore

log = logging.getLogger(__name__)
REFERENCE_REQUESTS = 500
"""The first requests under a version, taken as the reference for its traffic."""
MOST_HEARD = 10_000
"""Judgements remembered, so that one given again does not count again."""


class Gauges(Protocol):
    """Where figures are exposed."""

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None: ...


class ClassifierWatch:
    """`settled` is called for every request; `look` reads the feedback that has arrived since."""

    def __init__(self, feedback: FeedbackStore, entries: EntryStore) -> None:
        self._feedback = feedback
        self._entries = entries
        self._read_to: int | None = None
        self._version = ""
        self._first: list[float] = []
        self._drift: DriftMonitor | None = None
        self._judgements: dict[str, JudgedModel] = {}
        self._heard: dict[tuple[str, str], None] = {}

    def settled(self, entry: Entry) -> None:
        """A new classifier predicts different difficulties, so its traffic gets a reference of its own."""
        decision = entry.intent.decision
        if decision.facts.difficulty is None:
            return
        if decision.classifier_version != self._version:
            self._version, self._first, self._drift, self._judgements = decision.classifier_version, [], None, {}
        if self._drift is not None:
            self._drift.observe(decision.facts.difficulty)
            return
        self._first.append(decision.facts.difficulty)
        if len(self._first) == REFERENCE_REQUESTS:
            self._drift, self._first = build_reference(self._first), []

    async def look(self) -> None:
        """The first call skips feedback from before the start."""
        if self._read_to is None:
            self._read_to = await self._feedback.newest()
        while batch := await self._feedback.after(self._read_to):
            for one in batch:
                entry = await self._entries.get(one.request_id)
                self._read_to = one.number  # not before: while the database is down, the rest waits for the next call
                if entry is not None and one.source not in IMPLIED:
                    self._judged(entry, one)

    def show(self, gauges: Gauges) -> None:
        gauges.watch("classifier_drift", "Population stability index of difficulty.", lambda: self.drift)
        gauges.watch("classifier_alarms", "What is wrong with it; see the log.", lambda: float(len(self.alarms())))

    @property
    def drift(self) -> float:
        """0 until there is enough traffic to compare; above 0.25 is commonly considered a different population."""
        return 0.0 if self._drift is None or not sum(self._drift.counts) else self._drift.stability_index

    def alarms(self) -> list[str]:
        """Sentences that say what to do; empty if all is well."""
        found = [
            f"the classifier is {verdict} of {model}: `breakeven classifier learn`, then promote what it finds"
            for model, judged in sorted(self._judgements.items())
            if (verdict := judged.verdict) != "holds"
        ]
        if self._drift is not None and self._drift.is_alarmed:
            found.append(
                f"traffic is no longer what it was (stability index {self.drift:.2f}): look at the rules' thresholds, "
                "and adapt the classifier to labels of the new traffic"
            )
        return found

    def _judged(self, entry: Entry, one: Feedback) -> None:
        """Counts what a correction can learn from; of each source, the first judgement of a request."""
        decision = entry.intent.decision
        if decision.classifier_version != self._version or not routed([Judged(entry, one.score, 1.0)]):
            return
        if not self._is_new(one):
            return
        judged = self._judgements.setdefault(entry.model, JudgedModel())
        before = judged.verdict
        judged.observe(decision.facts.predicted_quality[entry.model], one.score, one.key_id)
        if (now := judged.verdict) not in ("holds", before):
            log.warning("the classifier is %s of %s; see `breakeven doctor`", now, entry.model)

    def _is_new(self, one: Feedback) -> bool:
        judgement = (one.request_id, one.source)
        if judgement in self._heard:
            return False
        self._heard[judgement] = None
        if len(self._heard) > MOST_HEARD:
            del self._heard[next(iter(self._heard))]
        return True
