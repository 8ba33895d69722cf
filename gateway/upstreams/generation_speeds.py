"""How many tokens a second each provider's model writes, unseen thoughts included, by the usages that it reported: for
answers that nobody reports a usage of, since their caller left. Reads no clock."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gateway.routing.snapshot import Candidate

REMEMBERED: Final = 16
LEAST_TOKENS: Final = 64
"""Of an answer whose speed says anything: the wait for its first token is in its time."""
ASSUMED_TOKENS_PER_SECOND: Final = 100.0
"""Until an answer of any model was heard to its end."""


@dataclass(slots=True)
class GenerationSpeeds:
    """Of one choice each, of this process."""

    _known: dict[tuple[str, str], deque[float]] = field(default_factory=dict[tuple[str, str], deque[float]])

    def note(self, candidate: Candidate, tokens: float, seconds: float) -> None:
        """An answer of so many tokens took so long, from when it was asked for to its last word."""
        if tokens >= LEAST_TOKENS and seconds > 0:
            model = (candidate.backend, candidate.upstream_model)
            self._known.setdefault(model, deque(maxlen=REMEMBERED)).append(tokens / seconds)

    def tokens_per_second(self, candidate: Candidate) -> float:
        """The highest lately. A model that nobody has heard to its end may be as quick as the quickest known."""
        known = self._known.get((candidate.backend, candidate.upstream_model))
        if known:
            return max(known)
        return max((max(speeds) for speeds in self._known.values()), default=ASSUMED_TOKENS_PER_SECOND)
