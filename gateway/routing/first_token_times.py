"""How long a model has taken to its first token lately, and when it is later than nearly always. The clock is passed
in."""

from collections import deque
from dataclasses import dataclass, field

REMEMBERED = 64
FRESH_SECONDS = 300.0
LEAST_SAMPLES = 20
LATE_SHARE = 0.95


@dataclass(slots=True)
class FirstTokenTimes:
    """Of one upstream model: (when, seconds), oldest first."""

    samples: deque[tuple[float, float]] = field(default_factory=lambda: deque[tuple[float, float]](maxlen=REMEMBERED))

    def record(self, now: float, seconds: float) -> None:
        """A first token came after so long."""
        self.samples.append((now, seconds))

    def late_seconds(self, now: float) -> float | None:
        """The 95th percentile; None while too little is known to call anything late."""
        fresh = sorted(seconds for at, seconds in self.samples if now - at <= FRESH_SECONDS)
        return fresh[int(LATE_SHARE * len(fresh))] if len(fresh) >= LEAST_SAMPLES else None
