"""Ledger entries as the admin API and `breakeven logs` show them. Pure; knows no store."""

from collections.abc import Sequence

from msgspec.structs import asdict
from pydantic import BaseModel, Field

from gateway.ledger.entry import Entry, Media, Status
from gateway.moments import Moment
from gateway.money import format_usd, known_usd
from gateway.stores import AdjustmentKind, Correction, EntryOrder, EntryWanted
from gateway.strict import Strict


class EntryFilter(Strict):
    """All given fields must match; `until` is exclusive."""

    since: Moment | None = None
    until: Moment | None = None
    key_id: str | None = Field(default=None, max_length=64)
    team: str | None = Field(default=None, max_length=64)
    project: str | None = Field(default=None, max_length=64)
    model: str | None = Field(default=None, max_length=120)
    backend: str | None = Field(default=None, max_length=120)
    rule: str | None = Field(default=None, max_length=120)
    tag: str | None = Field(default=None, max_length=64)
    batch_id: str | None = Field(default=None, max_length=64, description="Only requests of this batch")
    end_user: str | None = Field(default=None, max_length=256, description="Only requests made for this end user")
    status: Status | None = None
    order: EntryOrder = Field(
        default="newest", description="Newest first, or largest figure first; `cost` includes corrections"
    )
    before: str | None = Field(default=None, max_length=64, description="Request id of the previous page's last row")
    limit: int = Field(default=50, ge=1, le=500)

    def wanted(self) -> EntryWanted:
        return EntryWanted(**dict(self))


class EntrySummary(BaseModel):
    """One request. Costs are decimal text in dollars; null if no price is known.

    `cost_usd` is what was booked at settlement; `corrected_cost_usd` includes the corrections booked since.
    """

    request_id: str
    accepted_at_us: int
    key_id: str
    team: str | None
    project: str | None
    tags: list[str]
    operation: str
    requested_model: str
    model: str
    backend: str
    provider: str
    rule: str
    status: Status
    http_status: int
    difficulty: float | None
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    cost_usd: str | None
    corrections_usd: str
    corrected_cost_usd: str | None
    queue_seconds: float | None
    time_to_first_token_seconds: float | None
    decode_tokens_per_second: float | None
    total_seconds: float
    is_simulated: bool
    is_usage_estimated: bool


class EntryPage(BaseModel):
    entries: list[EntrySummary]
    next_before: str | None


class CostLine(BaseModel):
    """One token class: its count and its cost."""

    name: str
    tokens: int | None
    cost_usd: str


class EntryAttempt(BaseModel):
    """`cost_usd` of a failed attempt is what the provider may have billed for it all the same; the request's cost
    includes it. It is null for the attempt that answered, whose cost is in the request's `lines`."""

    number: int
    model: str
    backend: str
    outcome: str
    started_after_seconds: float
    lasted_seconds: float
    http_status: int | None
    cost_usd: str | None


class EntryCorrection(BaseModel):
    """`reference` is the prices version or the invoice that the correction was booked for."""

    at_us: int
    kind: AdjustmentKind
    reference: str
    reason: str
    amount_usd: str


class EntryDetail(EntrySummary):
    """Everything the ledger knows about one request. Counts of audio and images are null if they do not apply, or if
    the first versions of Breakeven booked it. `batch_id` is null if it was not part of a batch, and
    `end_user` unless `record_end_users` was set, the body named one and it has not been forgotten since."""

    batch_id: str | None
    end_user: str | None
    is_stream: bool
    upstream_model: str
    cache_write_tokens: int
    reasoning_tokens: int
    audio_input_tokens: int | None
    audio_output_tokens: int | None
    image_input_tokens: int | None
    image_output_tokens: int | None
    images: int | None
    audio_seconds: float | None
    characters: int | None
    search_units: int | None
    web_searches: int
    file_searches: int
    other_tool_calls: int
    lines: list[CostLine]
    corrections: list[EntryCorrection]
    list_cost_usd: str | None
    cost_lower_usd: str | None
    cost_upper_usd: str | None
    gpu_seconds: float
    prefill_seconds: float | None
    prefill_tokens_per_second: float | None
    decode_seconds: float | None
    finish_reason: str | None
    error: str | None
    service_tier: str | None
    attempts: list[EntryAttempt]
    candidates: list[str]
    predicted_quality: dict[str, float]
    uncertainty: float | None
    expected_cost_usd: str | None
    propensity: float
    rules_version: str
    prices_version: str
    classifier_version: str


def summary(entry: Entry, corrections: Sequence[Correction]) -> EntrySummary:
    """A ledger entry as one row."""
    return EntrySummary.model_validate(_summary_fields(entry, corrections))


def detail(entry: Entry, corrections: Sequence[Correction]) -> EntryDetail:
    """A ledger entry in full."""
    decision = entry.intent.decision
    first = entry.time_to_first_token_seconds
    return EntryDetail.model_validate(
        {
            **(asdict(entry.media) if entry.media else dict.fromkeys(Media.__struct_fields__)),
            **_summary_fields(entry, corrections),
            "cache_write_tokens": entry.cache_write_5m_tokens + entry.cache_write_1h_tokens,
            "audio_seconds": entry.media and entry.media.audio_milliseconds / 1000,
            "lines": _lines(entry),
            "corrections": [
                EntryCorrection(
                    at_us=one.at_us,
                    kind=one.booked.kind,
                    reference=one.booked.reference,
                    reason=one.booked.reason,
                    amount_usd=format_usd(one.booked.amount_pico_usd),
                )
                for one in corrections
            ],
            "list_cost_usd": known_usd(entry.cost.list_pico_usd if entry.cost else None),
            "cost_lower_usd": known_usd(entry.cost_lower_pico_usd),
            "cost_upper_usd": known_usd(entry.cost_upper_pico_usd),
            "prefill_seconds": None if first is None else max(0.0, first - (entry.queue_seconds or 0.0)),
            "decode_seconds": None if first is None else max(0.0, entry.total_seconds - first),
            "attempts": [{**asdict(one), "cost_usd": known_usd(one.cost_pico_usd)} for one in entry.attempts],
            "predicted_quality": dict(decision.facts.predicted_quality),
            "uncertainty": decision.facts.uncertainty,
            "expected_cost_usd": known_usd(decision.expected_cost_pico_usd),
        }
    )


def _summary_fields(entry: Entry, corrections: Sequence[Correction]) -> dict[str, object]:
    """All recorded fields by name, plus derived ones; the view picks those it declares. Where decision, intent and
    entry share a name (model, backend) the entry's wins: it is what actually served the request."""
    intent = entry.intent
    booked = entry.cost.total_pico_usd if entry.cost else None
    corrected = sum(one.booked.amount_pico_usd for one in corrections)
    return {
        **asdict(intent.decision),
        **asdict(intent),
        **asdict(entry),
        "difficulty": intent.decision.facts.difficulty,
        "cost_usd": known_usd(booked),
        "corrections_usd": format_usd(corrected),
        "corrected_cost_usd": known_usd((booked or 0) + corrected if corrections else booked),
    }


def _lines(entry: Entry) -> list[CostLine]:
    """The token classes as they are priced; reasoning is part of output."""
    cost = entry.cost
    if cost is None:
        return []
    written = entry.cache_write_5m_tokens + entry.cache_write_1h_tokens
    fresh = entry.input_tokens - entry.cached_input_tokens - written
    every = (
        ("input, not cached", fresh, cost.input_pico_usd),
        ("input, read from cache", entry.cached_input_tokens, cost.cached_input_pico_usd),
        ("input, written to cache", written, cost.cache_write_pico_usd),
        ("output, reasoning included", entry.output_tokens, cost.output_pico_usd),
        ("other (fees, searches, images, audio, attempts that did not answer)", None, cost.other_pico_usd),
        ("GPU time", None, cost.compute_pico_usd),
    )
    return [
        CostLine(name=name, tokens=tokens, cost_usd=format_usd(pico)) for name, tokens, pico in every if tokens or pico
    ]
