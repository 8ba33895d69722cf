"""Whether judgements contradict the predictions for one model, not relying on a single key. Pure counting."""

from collections import Counter

from classifier.online.alarms import CalibrationMonitor
from gateway.learning.voices import outvoted


class JudgedModel:
    """All judgements since the start, and the same without each single key."""

    def __init__(self) -> None:
        self._all = CalibrationMonitor()
        self._without: dict[str, CalibrationMonitor] = {}
        self._said: Counter[str | None] = Counter()

    def observe(self, predicted: float, score: float, voter: str | None) -> None:
        """Adds a judgement; `voter` is the key that gave it, or whose request a judge model judged."""
        if voter is not None:
            self._without.setdefault(voter, self._all)  # everything so far came from others
        for other, monitor in self._without.items():
            if other != voter:
                self._without[other] = monitor.observe(predicted, score)
        self._all = self._all.observe(predicted, score)
        self._said[voter] += 1

    @property
    def verdict(self) -> str:
        """`overconfident`, `underconfident` or `holds`; `holds` also if the verdict depends on one key that others
        outvote."""
        said = self._all.verdict
        return said if all(self._without[key].verdict == said for key in outvoted(self._said)) else "holds"
