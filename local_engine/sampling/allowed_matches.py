"""Applies a constraint together with `allowed_token_ids`, until no token is left that both allow."""

import torch

from local_engine.sampling.constraints import Matcher


class AllowedMatches:
    """A matcher for rows in which disallowed tokens are already at minus infinity."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._failure: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing may follow."""
        return self._matcher.is_complete

    @property
    def failure(self) -> str | None:
        """Why it can no longer say what may follow."""
        return self._failure or self._matcher.failure

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity; the row itself if none is left."""
        masked = self._matcher.mask(logits)
        if masked.isfinite().any():
            return masked
        self._failure = "none of allowed_token_ids may follow"
        return logits

    def consume(self, token_id: int) -> None:
        """Advances by a drawn token."""
        self._matcher.consume(token_id)
