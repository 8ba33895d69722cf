"""When to stop trusting the classifier: traffic that drifted, or probabilities that no longer hold. Pure counting."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

BINS = 10
MOST_WEIGHT = 1e100


@dataclass(slots=True)
class DriftMonitor:
    """Population stability index of difficulty against a reference; each observation fades older ones."""

    reference: Sequence[float]
    memory: float = 2000.0
    threshold: float = 0.25
    _weighted: list[float] = field(default_factory=lambda: [0.0] * BINS)
    _weight: float = 1.0
    """Of the latest observation: that it grows costs each request less than that all counts shrink."""

    def observe(self, difficulty: float) -> None:
        """Adds a request of that difficulty in [0, 1]."""
        self._weight /= 1.0 - 1.0 / self.memory
        self._weighted[_bin_of(difficulty)] += self._weight
        if self._weight > MOST_WEIGHT:
            self._weighted, self._weight = self.counts, 1.0

    @property
    def counts(self) -> list[float]:
        """Requests by difficulty, older ones faded."""
        return [count / self._weight for count in self._weighted]

    @property
    def stability_index(self) -> float:
        """0 for equal distributions; above 0.25 is commonly considered a different population."""
        seen, expected = _shares(self.counts), _shares(self.reference)
        return math.fsum((now - then) * math.log(now / then) for now, then in zip(seen, expected, strict=True))

    @property
    def is_alarmed(self) -> bool:
        """Only once there is enough traffic for a meaningful index."""
        return sum(self.counts) >= self.memory / 10 and self.stability_index > self.threshold


@dataclass(frozen=True, slots=True)
class CalibrationMonitor:
    """Two-sided CUSUM of outcome minus predicted quality: alarms on a lasting bias, not on a bad hour.

    At a quality of a half, where outcomes vary most, chance alone exceeds the limit once in some hundred thousand."""

    slack: float = 0.05
    limit: float = 20.0
    high: float = 0.0
    low: float = 0.0

    def observe(self, predicted: float, outcome: float) -> "CalibrationMonitor":
        """Adds an outcome in [0, 1] and the quality predicted for it."""
        error = outcome - predicted
        return replace(self, high=max(0.0, self.high + error - self.slack), low=max(0.0, self.low - error - self.slack))

    @property
    def verdict(self) -> str:
        """`overconfident`, `underconfident` or `holds`."""
        if self.low > self.limit:
            return "overconfident"
        return "underconfident" if self.high > self.limit else "holds"


def build_reference(difficulties: Sequence[float]) -> DriftMonitor:
    """A monitor with this sample as its reference."""
    counts = [0.0] * BINS
    for difficulty in difficulties:
        counts[_bin_of(difficulty)] += 1.0
    return DriftMonitor(counts)


def _bin_of(difficulty: float) -> int:
    return min(max(int(difficulty * BINS), 0), BINS - 1)


def _shares(counts: Sequence[float]) -> list[float]:
    """Shares with half a count added to every bin, so that empty ones have a logarithm."""
    total = sum(counts) + 0.5 * len(counts)
    return [(count + 0.5) / total for count in counts]
