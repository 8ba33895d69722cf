"""The answer of a replay of logged traffic under other rules."""

from collections.abc import Awaitable, Callable
from datetime import datetime

from pydantic import BaseModel

from gateway.routing.rules import RulesDocument


class ReplayMove(BaseModel):
    """Requests that would move from one model to another, and the change in their cost (negative: cheaper).

    `unpriced_requests` of them have no known cost before or after, and are not in the change.
    """

    from_model: str
    to_model: str
    requests: int
    unpriced_requests: int
    cost_change_usd: str


class ReplayResult(BaseModel):
    """What the edited rules would have done. Costs after the change are expected ones; unknown figures are null.

    Before and after cover the same requests: `refused_requests` are in neither, `unpriced_requests` in no cost.
    """

    since: datetime
    until: datetime
    requests: int
    moved_requests: int
    refused_requests: int
    unpriced_requests: int
    cost_before_usd: str
    cost_after_usd: str
    quality_before: float | None
    quality_after: float | None
    time_to_first_token_before_seconds: float | None
    time_to_first_token_after_seconds: float | None
    moves: list[ReplayMove]
    is_sampled: bool = False
    notes: list[str] = []


Replay = Callable[[RulesDocument, int | None, int | None], Awaitable[ReplayResult]]
"""Re-decides logged traffic of a period under a document; None, None is the last seven days."""
