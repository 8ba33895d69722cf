"""A model's recent times to first token, and when one counts as unusually late. The clock is passed in."""

from collections import deque
from dataclasses import dataclass, field

REMEMBERED = 64
FRESH_SECONDS = 300.0
LEAST_SAMPLES = 20
LATE_SHARE = 0.95


@dataclass(slots=True)
class FirstTokenTimes:
    """Samples of one upstream model: (when, seconds), oldest first."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque[tuple[float, float]](maxlen=REMEMBERED))

    def record(self, now: float, seconds: float) -> None:
        """Records a time to first token."""
        self.samples.append((now, seconds))

    def late_seconds(self, now: float) -> float | None:
        """The 95th percentile; None with too few recent samples."""
        fresh = sorted(seconds for at, seconds in self.samples if now - at <= FRESH_SECONDS)
        return fresh[int(LATE_SHARE * len(fresh))] if len(fresh) >= LEAST_SAMPLES else None
