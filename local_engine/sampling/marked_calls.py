"""Leaves an answer free, except after a mark, where a constraint applies until it is complete; repeatedly."""

from collections.abc import Callable

import torch

from local_engine.sampling.constraints import Matcher


class MarkedCalls:
    """A matcher of what a mark begins, including the mark; `begin` creates one for each occurrence."""

    def __init__(self, begin: Callable[[], Matcher], mark: int) -> None:
        self._begin = begin
        self._mark = mark
        self._matcher: Matcher | None = None

    @property
    def is_complete(self) -> bool:
        """Text may always follow."""
        return False

    @property
    def failure(self) -> str | None:
        """Why it can no longer say what may follow."""
        return None if self._matcher is None else self._matcher.failure

    def mask(self, logits: torch.Tensor) -> torch.Tensor:
        """A copy of one row with every token that may not follow at minus infinity."""
        return logits.clone() if self._matcher is None else self._matcher.mask(logits)

    def consume(self, token_id: int) -> None:
        """Advances by a drawn token."""
        if self._matcher is None and token_id == self._mark:
            self._matcher = self._begin()
        if self._matcher is not None:
            self._matcher.consume(token_id)
            if self._matcher.is_complete and self._matcher.failure is None:
                self._matcher = None
