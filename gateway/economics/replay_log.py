"""One logged request as the replay reads it, and how a ledger entry becomes one."""

from dataclasses import dataclass
from typing import NamedTuple

from gateway.ledger.entry import Entry, Facts
from gateway.routing.snapshot import RequestFacts, request_facts_of


class Served(NamedTuple):
    """What is priced: token classes as in the ledger (cached and written tokens are part of the input)."""

    at_us: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A settled request. `conversation` names the thread whose prefix a provider may have cached; None: no thread.

    `cost_pico_usd` is everything that was charged, failed attempts included; None: its price is not known.
    """

    request: RequestFacts
    request_id: str
    model: str
    served: Served
    cost_pico_usd: int | None
    quality: float | None
    time_to_first_token_seconds: float | None
    total_seconds: float
    conversation: str | None = None

    @property
    def facts(self) -> Facts:
        return self.request.facts


def logged_request_of(entry: Entry, *, conversation: str | None = None) -> LoggedRequest:
    """The request behind a ledger entry."""
    return LoggedRequest(
        request=request_facts_of(entry.intent),
        request_id=entry.intent.request_id,
        model=entry.model,
        served=Served(
            at_us=entry.intent.accepted_at_us,
            input_tokens=entry.input_tokens,
            cached_input_tokens=entry.cached_input_tokens,
            cache_write_tokens=entry.cache_write_5m_tokens + entry.cache_write_1h_tokens,
            output_tokens=entry.output_tokens,
            gpu_seconds=entry.gpu_seconds,
        ),
        cost_pico_usd=None if entry.cost is None else entry.cost.total_pico_usd,
        quality=entry.intent.decision.predicted_quality,
        time_to_first_token_seconds=entry.time_to_first_token_seconds,
        total_seconds=entry.total_seconds,
        conversation=conversation,
    )
