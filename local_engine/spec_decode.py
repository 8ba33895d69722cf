"""Prompt-lookup speculation: drafts copied from where the last few tokens occurred before. No torch.

A draft is verified by drawing as usual at each of its positions and keeping tokens while they agree. Every kept token
is drawn from the model's own distribution with the random numbers it would have had without a draft, so greedy and
sampled answers are the same with and without speculation.
"""

from dataclasses import dataclass, field

NGRAM_SIZES = (4, 3, 2)
MAX_PAUSE_TOKENS = 128


@dataclass(slots=True)
class NgramDrafter:
    """One request's drafts. Depth doubles while whole drafts are accepted, and pauses grow while drafts fail."""

    max_depth: int
    _depth: int = 0
    _misses: int = 0
    _resume_at: int = 0
    _indexed: int = 0
    _after: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])

    def propose(self, token_ids: list[int]) -> list[int]:
        """Up to the current depth of tokens that followed the latest earlier occurrence of the ending; may be empty."""
        self._index(token_ids)
        if len(token_ids) < self._resume_at:
            return []
        for size in NGRAM_SIZES:
            at = self._after.get(tuple(token_ids[-size:])) if len(token_ids) > size else None
            if at is not None:
                return token_ids[at : at + (self._depth or self.max_depth)]
        return []

    def learn(self, proposed: int, accepted: int, length: int) -> None:
        """Adapts to how many of the proposed tokens were right; `length` is the request's current number of tokens."""
        if proposed == 0:
            return
        if accepted == 0:
            self._misses += 1
            self._depth = 1
            self._resume_at = length + min(MAX_PAUSE_TOKENS, 2**self._misses)
            return
        self._misses = 0
        whole = accepted == proposed
        self._depth = min(self.max_depth, proposed * 2) if whole else min(self.max_depth, accepted + 1)

    def _index(self, token_ids: list[int]) -> None:
        """Indexes where each ending occurred; the current ending is added only when a token follows it."""
        for end in range(max(1, self._indexed), len(token_ids)):
            for size in NGRAM_SIZES:
                if end >= size:
                    self._after[tuple(token_ids[end - size : end])] = end
        self._indexed = max(self._indexed, len(token_ids))
