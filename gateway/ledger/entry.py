"""The records of the ledger. Fields are only ever appended: old journals must stay readable.

Money is integer pico-USD; None means that the price is unknown, which is not zero. Times are microseconds since the
Unix epoch, UTC. Durations are seconds.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from backends.usage import NO_UNITS, Units
from classifier.predictions import Predictions

SHADOW = "shadow"
"""The operation of requests repeated off the path for comparison."""
JUDGE = "judge"
"""The operation of requests that ask a model to judge both answers."""
OFF_PATH = frozenset({SHADOW, JUDGE})
"""Operations of the gateway's own requests, each also in place of a key's id: they cost money, and no caller sees
them."""


class Status(StrEnum):
    """How a request ended."""

    completed = "completed"
    partial = "partial"  # failed or was cut off after the first chunk; the tokens received are charged
    cancelled = "cancelled"  # the caller disconnected
    failed = "failed"  # no attempt produced a first chunk
    orphaned = "orphaned"  # the process died before settling; recovery settled it with cost bounds


class Facts(msgspec.Struct, frozen=True, array_like=True):
    """Every input of `decide()` that is not in the rules or prices, so that a decision can be replayed.

    `predictions` are the classifier's for each model; `quality` and `output_tokens` have those of early versions and
    whatever else is expected of a model, by its name, and count instead; `backend_state` is what was known
    of each candidate's backend at that moment (upstreams/load.py). The next two summarise earlier traffic: per rule,
    what its exploration has cost today; per `target_name` of a rule, its calibrated threshold. `repeated_tokens` of the
    input are expected to be sent again, for models with prompts marked for caching. `units` may be billed per piece.
    `longest_prompt_tokens` are of the longest of several prompts; 0: there is one.
    """

    input_tokens: int
    max_output_tokens: int | None
    difficulty: float | None
    uncertainty: float | None
    quality: dict[str, float]
    output_tokens: dict[str, float]
    needs: tuple[str, ...] = ()
    warm_tokens: dict[str, int] = {}
    backend_state: dict[str, tuple[int, float]] = {}
    draw: float = 0.0
    explored_pico_usd: dict[str, int] = {}
    allowed_loss: dict[str, float] = {}
    repeated_tokens: int = 0
    units: Units = NO_UNITS
    longest_prompt_tokens: int = 0
    predictions: Predictions | None = None

    @property
    def window_tokens(self) -> int:
        """The input that has to fit into a context window: each of several prompts is read by itself."""
        return self.longest_prompt_tokens or self.input_tokens

    @property
    def predicted_quality(self) -> dict[str, float] | Predictions:
        """By model."""
        return self.quality if self.predictions is None or self.quality else self.predictions

    def qualities_of(self, models: Sequence[str]) -> list[float | None]:
        """The same for each of these models; None for one without predictions."""
        if self.predictions is None or self.quality:
            return list(map(self.quality.get, models))
        return self.predictions.qualities_of(models)

    def lengths_of(self, models: Sequence[str]) -> list[float | None]:
        """Of each model's answer, in tokens; None for one without predictions."""
        if self.predictions is None or self.output_tokens:
            return list(map(self.output_tokens.get, models))
        return self.predictions.lengths_of(models)


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What was decided and under which versions. `exploration_pico_usd` is the expected extra cost of trying this model
    instead of the preferred one; `escalates_to` are the models asked if its answer fails verification."""

    rule: str
    model: str
    candidates: tuple[str, ...]
    expected_cost_pico_usd: int | None
    predicted_quality: float | None
    propensity: float
    rules_version: str
    prices_version: str
    classifier_version: str
    facts: Facts
    exploration_pico_usd: int = 0
    escalates_to: tuple[str, ...] = ()


def tenant_of(team: str | None, key_id: str) -> str:
    """Who shares a prompt cache: the keys of one team share theirs, any other key has its own."""
    return f"team {team}" if team is not None else f"key {key_id}"


ESCALATED = "escalated:"


class PaidTo(msgspec.Struct, frozen=True, array_like=True):
    """Who bills an attempt that did not answer, and the bounds of its cost (`upper` None: unknown)."""

    provider: str
    upstream_model: str
    is_simulated: bool
    lower_pico_usd: int
    upper_pico_usd: int | None


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """One attempt at one backend. The one that answered has no cost here, because it is the entry's. The cost of any
    other is what was, or may have been, billed for it all the same; it is also part of the entry's `other` cost, and
    `paid_to` names who bills it (None: nothing was billed, or the biller is not on record).

    `outcome` is "answered", "called_off" (another was faster), "escalated:" plus why its answer failed verification, or
    the BackendError's class name.
    """

    number: int
    model: str
    backend: str
    outcome: str
    started_after_seconds: float
    lasted_seconds: float
    cost_pico_usd: int | None = 0
    http_status: int | None = None
    paid_to: PaidTo | None = None


class Intent(msgspec.Struct, frozen=True, array_like=True):
    """Written before the first byte goes upstream. Enough to settle the request if this process dies."""

    request_id: str  # UUIDv7, 32 hexadecimal digits
    accepted_at_us: int
    key_id: str
    team: str | None
    project: str | None
    tags: tuple[str, ...]
    operation: str
    requested_model: str
    is_stream: bool
    decision: Decision
    backend: str
    provider: str
    upstream_model: str
    cost_bound_pico_usd: int | None  # the most it can cost: input plus the output limit
    is_simulated: bool = False  # the model chosen has no provider behind it
    allowed_models: tuple[str, ...] | None = None  # the key's allow-list at that time; None: every model
    traceparent: str | None = None  # the caller's W3C trace, for telemetry; not stored in the database
    batch_id: str | None = None  # the batch this request is a line of; its shadow calls have None
    end_user: str | None = None  # the app's own customer, if recorded: personal data, for no log, metric, shadow call

    @property
    def tenant(self) -> str:
        return tenant_of(self.team, self.key_id)


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A stream still running: the least it has cost so far."""

    request_id: str
    output_tokens: int
    cost_so_far_pico_usd: int | None


class Cost(msgspec.Struct, frozen=True, array_like=True):
    """Cost by token class at the effective price; `list_pico_usd` is the same usage at list price.

    For the local engine, `compute` is the measured GPU-seconds at the GPU-hour price and the token classes are 0. Time
    in which it served nobody is the idle line of the reports: rent = sum of compute + idle.
    """

    input_pico_usd: int = 0
    cached_input_pico_usd: int = 0
    cache_write_pico_usd: int = 0
    output_pico_usd: int = 0
    other_pico_usd: int = 0
    compute_pico_usd: int = 0
    list_pico_usd: int = 0

    @property
    def total_pico_usd(self) -> int:
        return (
            self.input_pico_usd
            + self.cached_input_pico_usd
            + self.cache_write_pico_usd
            + self.output_pico_usd
            + self.other_pico_usd
            + self.compute_pico_usd
        )


class Media(msgspec.Struct, frozen=True, array_like=True):
    """How many of an entry's tokens were audio or images, which may be priced differently, and the units that may be
    billed per piece (`backends.usage.Units`)."""

    audio_input_tokens: int = 0
    audio_output_tokens: int = 0
    image_input_tokens: int = 0
    image_output_tokens: int = 0
    images: int = 0
    audio_milliseconds: int = 0
    characters: int = 0
    search_units: int = 0
    cached_audio_tokens: int = 0

    @property
    def units(self) -> Units:
        return Units(self.images, self.audio_milliseconds, self.characters, self.search_units)


NO_MEDIA = Media()


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The settled request: exactly one per Intent."""

    intent: Intent
    status: Status
    model: str  # the one that answered, or was tried last
    backend: str
    provider: str
    upstream_model: str
    input_tokens: int
    cached_input_tokens: int
    cache_write_5m_tokens: int
    cache_write_1h_tokens: int
    output_tokens: int
    reasoning_tokens: int
    is_usage_estimated: bool
    is_simulated: bool
    service_tier: str | None
    cost: Cost | None  # None: price unknown; see `prices reprice`
    cost_lower_pico_usd: int | None  # equal to the cost unless estimated or orphaned
    cost_upper_pico_usd: int | None
    gpu_seconds: float
    queue_seconds: float | None
    time_to_first_token_seconds: float | None
    prefill_tokens_per_second: float | None
    decode_tokens_per_second: float | None
    total_seconds: float
    finish_reason: str | None
    http_status: int
    error: str | None  # one word: the error's class
    attempts: tuple[Attempt, ...]
    web_searches: int = 0  # made by the provider for the answer and billed in addition to tokens
    file_searches: int = 0
    other_tool_calls: int = 0  # to the provider's other tools, whose charges the answer does not report
    media: Media | None = None  # None: early versions did not record it
    charged_pico_usd: int | None = None  # by the answer's provider, where it says so


class Ledger(Protocol):
    """What the request path writes to: per accepted request these three calls, in this order."""

    def intend(self, intent: Intent) -> None:
        """Written, not synced: survives kill -9. Raises LedgerUnavailable when nothing more can be accepted."""
        ...

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Written, not synced."""
        ...

    async def settle(self, entry: Entry) -> None:
        """Durable when it returns: survives power loss. The last byte of the answer waits for this.

        The entry is accepted before the first await, so a caller cancelled while waiting has still settled.
        """
        ...

    def gauges(self) -> Mapping[str, float]:
        """`open_intents`, `unshipped_entries`, `unshipped_seconds`, `journal_bytes`."""
        ...
