"""Generation speed of each provider's model in tokens per second, hidden reasoning included, from reported usage: to
estimate answers without a usage report, because their caller left. Reads no clock."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.routing.snapshot import Candidate

REMEMBERED: Final = 16
LEAST_TOKENS: Final = 64
"""Shorter answers say little about speed, as the time to first token is included."""
ASSUMED_TOKENS_PER_SECOND: Final = 100.0
"""Until an answer of any model has been observed."""


@dataclass(slots=True)
class GenerationSpeeds:
    """Speeds per choice, of this process."""

    _known: dict[tuple[str, str], deque[float]] = field(default_factory=dict[tuple[str, str], deque[float]])

    def note(self, candidate: Candidate, tokens: float, seconds: float) -> None:
        """An answer took this long for this many tokens, from the request to its end."""
        if tokens >= LEAST_TOKENS and seconds > 0:
            model = (candidate.backend, candidate.upstream_model)
            self._known.setdefault(model, deque(maxlen=REMEMBERED)).append(tokens / seconds)

    def tokens_per_second(self, candidate: Candidate) -> float:
        """The highest recent speed. An unobserved model is assumed to be as fast as the fastest known."""
        known = self._known.get((candidate.backend, candidate.upstream_model))
        if known:
            return max(known)
        return max((max(speeds) for speeds in self._known.values()), default=ASSUMED_TOKENS_PER_SECOND)
