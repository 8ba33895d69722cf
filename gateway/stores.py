"""What the rest of the gateway asks of a database, as protocols and values. Names no technology.

The rules' store is beside its service (rules_service.py), the ledger's protocol beside its records (ledger/entry.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict

from gateway.economics.traffic import HourlyTraffic
from gateway.keys import KeyRecord, Role
from gateway.ledger.entry import Entry, Status
from gateway.limits import BudgetScope

Dimension = Literal[
    "model",
    "team",
    "project",
    "key",
    "backend",
    "provider",
    "rule",
    "status",
    "operation",
    "upstream_model",
    "is_simulated",
    "tag",
    "tags",
    "hour",
    "day",
    "month",
]


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a key is made from."""

    name: str
    role: Role = "app"
    team: str | None = None
    project: str | None = None
    tags: tuple[str, ...] = ()
    allowed_models: tuple[str, ...] | None = None
    expires_at_us: int | None = None
    keeps_bodies: bool = False


class KeyChange(TypedDict, total=False):
    """What is to be another; what is left out stays. None is nobody, all models, or no end, as in NewKey."""

    name: str
    team: str | None
    project: str | None
    tags: tuple[str, ...]
    allowed_models: tuple[str, ...] | None
    expires_at_us: int | None
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedKey:
    """A key without its secret."""

    record: KeyRecord
    created_at_us: int


class KeyStore(Protocol):
    """Where keys are kept. Every write is recorded in the audit log by whoever implements it."""

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        """The key and its secret, which nobody can read again. Limits are as gateway.admission takes them."""
        ...

    async def list(self) -> Sequence[ListedKey]:
        """Newest first, revoked ones included."""
        ...

    async def revoke(self, key_id: str, *, author: str) -> bool:
        """False when there is no such key."""
        ...

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        """Key id -> its limits as they were last set."""
        ...

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        """False when there is no such key. Books keep what was asked under the team and tags of its time."""
        ...

    async def records(self) -> Mapping[bytes, KeyRecord]:
        """Every key by its hash: what a KeyRing holds."""
        ...

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None: ...


SHADOW = "shadow"
"""The operation of requests that were asked a second time, off the path: they cost money and no caller saw them."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent in a calendar month (UTC); `name` is empty for everything. If it `stops`, no more is spent."""

    scope: BudgetScope
    name: str
    month_pico_usd: int
    set_by: str
    set_at_us: int
    stops: bool = False


class BudgetStore(Protocol):
    """Both writes are recorded in the audit log by whoever implements them."""

    async def budgets(self) -> Sequence[Budget]:
        """Everything first, then teams and projects by name."""
        ...

    async def set(self, budget: Budget) -> None:
        """Make or replace the one of its scope and name."""
        ...

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        """False when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One link. `digest` (hexadecimal) covers the record and the digest before it."""

    sequence: int
    at_us: int
    actor: str
    action: str
    subject: str
    reason: str
    detail: str
    digest: str


@dataclass(frozen=True, slots=True)
class Verified:
    """`first_broken` is the sequence number of the first record that does not fit its chain."""

    is_intact: bool
    records: int
    first_broken: int | None


class AuditLog(Protocol):
    """Append-only; every store appends to it in the transaction of the change itself."""

    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRecord]:
        """Newest first, those with a sequence below `before`."""
        ...

    async def verify(self) -> Verified:
        """Recompute every link."""
        ...


class EntryWanted(Protocol):
    """A filter: all that is not None must hold. `before` is the request id of the last row of the page before."""

    @property
    def since(self) -> datetime | None: ...
    @property
    def until(self) -> datetime | None: ...
    @property
    def key_id(self) -> str | None: ...
    @property
    def team(self) -> str | None: ...
    @property
    def project(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def backend(self) -> str | None: ...
    @property
    def rule(self) -> str | None: ...
    @property
    def tag(self) -> str | None: ...
    @property
    def status(self) -> Status | None: ...
    @property
    def before(self) -> str | None: ...
    @property
    def limit(self) -> int: ...


class EntryStore(Protocol):
    """Reads entries that reached the database (within about two seconds of their settlement)."""

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        """Newest first."""
        ...

    async def get(self, request_id: str) -> Entry | None: ...


AdjustmentKind = Literal["reprice", "refund", "reconciliation"]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One correction of one request. `reference` is the prices version or invoice: the same one books once."""

    request_id: str
    kind: AdjustmentKind
    reference: str
    amount_pico_usd: int
    reason: str


FeedbackSource = Literal["caller", "shadow", "judge", "repeat", "format"]
"""Who says so: the caller over `/v1/feedback`, a program that compared a shadow call's answers, a judge model. The last
two nobody said: see gateway.implied_feedback."""
FeedbackKind = Literal["score", "label", "verifier"]
"""From what the score was made: given as a number, given as good or bad, computed from the answer by a program."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """How good the answer to one request was, from 0 to 1. `number` counts arrivals; 0 before it is stored."""

    request_id: str
    at_us: int
    kind: FeedbackKind
    score: float
    source: FeedbackSource
    key_id: str
    comment: str | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class ShadowCall:
    """`request_id` is the entry of the second answer, `of_request_id` of the one the caller saw."""

    request_id: str
    of_request_id: str
    at_us: int
    propensity: float


class FeedbackStore(Protocol):
    """Judgements on answers, append-only: the last of a source on a request is what it thinks now."""

    async def add(self, batch: Sequence[Feedback]) -> None: ...

    async def after(self, number: int, *, limit: int = 1000) -> Sequence[Feedback]:
        """In order of arrival, those that came after `number`: what a learner that stopped there goes on with."""
        ...

    async def of_request(self, request_id: str) -> Sequence[Feedback]: ...

    async def add_shadow(self, call: ShadowCall) -> None: ...

    async def shadows(self, since_us: int, until_us: int) -> Sequence[ShadowCall]:
        """Calls made in the period, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class SumsQuery:
    """What to sum: requests accepted in [since_us, until_us), by these dimensions, where these columns are so.

    `hour` is a UTC hour; `day` and `month` are those of `time_zone`. A request with several tags counts in each `tag`;
    `tags` is the JSON array of all it has, so that each request counts once.
    `filters` maps a dimension that is not a time to its value; None matches requests that have none.
    """

    since_us: int
    until_us: int
    by: tuple[Dimension, ...] = ()
    filters: Mapping[Dimension, str | None] = field(default_factory=dict[Dimension, str | None])
    time_zone: str = "UTC"
    with_latencies: bool = False


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles within 2 %, of those requests that have the figure; None where none has."""

    time_to_first_token_p50_seconds: float | None
    time_to_first_token_p95_seconds: float | None
    time_to_first_token_p99_seconds: float | None
    decode_tokens_per_second_p50: float | None
    decode_tokens_per_second_p5: float | None


@dataclass(frozen=True, slots=True)
class Sums:
    """One group. `group` maps each dimension asked for to its value: hours and days are ISO 8601 local times.

    Money of token classes and list price is of priced requests only: `unpriced_requests` are in none of it. The
    lower bound covers every request, the upper all but `unbounded_requests`. Corrections are in `adjustment_pico_usd`
    alone. `aborted_requests` are cancelled or partial ones.
    """

    group: Mapping[Dimension, str | None]
    requests: int = 0
    successful_requests: int = 0
    aborted_requests: int = 0
    simulated_requests: int = 0
    unpriced_requests: int = 0
    estimated_requests: int = 0
    unbounded_requests: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    input_pico_usd: int = 0
    cached_input_pico_usd: int = 0
    cache_write_pico_usd: int = 0
    output_pico_usd: int = 0
    other_pico_usd: int = 0
    compute_pico_usd: int = 0
    list_pico_usd: int = 0
    lower_pico_usd: int = 0
    upper_pico_usd: int = 0
    gpu_us: int = 0
    total_us: int = 0
    adjusted_requests: int = 0
    adjustment_pico_usd: int = 0
    latencies: Latencies | None = None

    @property
    def cost_pico_usd(self) -> int:
        """What was booked at admission's prices, without corrections."""
        return (
            self.input_pico_usd
            + self.cached_input_pico_usd
            + self.cache_write_pico_usd
            + self.output_pico_usd
            + self.other_pico_usd
            + self.compute_pico_usd
        )

    @property
    def corrected_cost_pico_usd(self) -> int:
        """What it is after all corrections."""
        return self.cost_pico_usd + self.adjustment_pico_usd

    @property
    def gpu_seconds(self) -> float:
        return self.gpu_us / 1e6


class ReportStore(Protocol):
    """Sums from the hourly rollups."""

    async def sums(self, query: SumsQuery) -> Sequence[Sums]:
        """One row per group, in the order of the groups' values. Raises ValueError for an unknown time zone."""
        ...

    async def hourly_traffic(
        self, since_us: int, until_us: int, *, with_simulated: bool = True, with_shadow: bool = False
    ) -> Sequence[HourlyTraffic]:
        """By hour and model, in that order; whole hours only. Shadow calls are nobody's traffic."""
        ...

    async def first_and_last_us(self) -> tuple[int, int] | None:
        """Start of the first and end of the last hour with a request; None without any."""
        ...
