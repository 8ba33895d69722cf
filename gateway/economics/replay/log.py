"""One logged request as the replay reads it, and how a ledger entry becomes one."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.ledger.entry import ESCALATED, NO_MEDIA, Entry, Facts, Media, Status
from gateway.routing.snapshot import RequestFacts, request_facts_of

UNFINISHED: Final = frozenset({"length", "content_filter"})
"""Finish reasons that always fail format verification."""

UNSURE: Final = frozenset({"unsure", "no_logprobs"})
"""Cascade outcomes of answers whose form passed or was not checked."""


class Served(NamedTuple):
    """What is priced: token classes as in the ledger (cached and written tokens are part of the input), the service
    tier that `provider` named, calls of its own tools, and audio and image tokens."""

    at_us: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_tokens: int
    output_tokens: int
    gpu_seconds: float
    provider: str = ""
    service_tier: str | None = None
    web_searches: int = 0
    file_searches: int = 0
    other_tool_calls: int = 0
    media: Media = NO_MEDIA


class Verified(NamedTuple):
    """The outcome of a cascade: whose answer was verified, whether it passed, and its cost if it did not. `is_unsure`:
    it failed on log-probabilities alone."""

    asked: str
    stood: bool
    cost_pico_usd: int = 0
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """A settled request. `decided` is the model that was chosen: if another answered instead, it failed, and fails
    again in the replay; so does a request that nobody answered, of those who were asked (`failed_at`).

    `cost_pico_usd` is everything charged, failed attempts included; None: unknown. `verified` None: no answer was
    verified. `is_unfinished`: the answer was cut or filtered and not verified; its form would have failed.
    """

    request: RequestFacts
    request_id: str
    model: str
    served: Served
    cost_pico_usd: int | None
    quality: float | None
    time_to_first_token_seconds: float | None
    total_seconds: float
    verified: Verified | None = None
    decided: str | None = None
    failed_at: frozenset[str] = frozenset()
    is_unfinished: bool = False

    @property
    def facts(self) -> Facts:
        return self.request.facts


def logged_request_of(entry: Entry) -> LoggedRequest:
    """Converts a ledger entry."""
    decision = entry.intent.decision
    verified = _verified(entry) if decision.escalates_to else None
    is_escalated = verified is not None and not verified.stood
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
            provider=entry.provider,
            service_tier=entry.service_tier,
            web_searches=entry.web_searches,
            file_searches=entry.file_searches,
            other_tool_calls=entry.other_tool_calls,
            media=entry.media or NO_MEDIA,
        ),
        cost_pico_usd=None if entry.cost is None else entry.cost.total_pico_usd,
        quality=decision.facts.predicted_quality.get(entry.model) if is_escalated else decision.predicted_quality,
        time_to_first_token_seconds=entry.time_to_first_token_seconds,
        total_seconds=entry.total_seconds,
        verified=verified,
        decided=decision.model,
        failed_at=_failed_at(entry),
        is_unfinished=_is_unfinished(entry),
    )


def _failed_at(entry: Entry) -> frozenset[str]:
    """Empty if there was an answer."""
    if entry.status is not Status.failed:
        return frozenset()
    return frozenset((entry.model, *(one.model for one in entry.attempts)))


def _is_unfinished(entry: Entry) -> bool:
    is_whole = entry.status is Status.completed and not entry.intent.decision.escalates_to
    return is_whole and entry.finish_reason in UNFINISHED


def _verified(entry: Entry) -> Verified | None:
    """The cascade's outcome; None if no answer could be verified, or the weak answer had to do."""
    refused = next((one for one in entry.attempts if one.outcome.startswith(ESCALATED)), None)
    if refused is not None:
        is_unsure = refused.outcome.removeprefix(ESCALATED) in UNSURE
        return Verified(refused.model, False, refused.cost_pico_usd or 0, is_unsure)
    escalates_to = entry.intent.decision.escalates_to
    is_plain = entry.status is Status.completed and not any(one.model in escalates_to for one in entry.attempts)
    return Verified(entry.model, True) if is_plain else None
