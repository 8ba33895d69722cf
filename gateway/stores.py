"""What the rest of the gateway asks of a database, as protocols and values. Names no technology.

The rules' store is in rulebook/service.py, the ledger's protocol beside its records (ledger/entry.py),
what the reports sum in sums.py.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict

from gateway.access.keys import KeyRecord, Role
from gateway.ledger.entry import Entry, Status
from gateway.limits.values import BudgetScope


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


LAST_DAYS = 90
"""So far back is looked whether a key is still used."""


class KeyStore(Protocol):
    """Where keys are kept. Every write is recorded in the audit log by whoever implements it."""

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        """The key and its secret, which nobody can read again. Limits are as gateway.limits.admission takes them."""
        ...

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        """Newest first, revoked ones included; of these ids alone where any are given."""
        ...

    async def revoke(self, key_id: str, *, author: str) -> bool:
        """False when there is no such key."""
        ...

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        """Key id -> its limits as they were last set, of those that have any."""
        ...

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        """False when there is no such key. Books keep what was asked under the team and tags of its time."""
        ...

    async def last_days(self) -> Mapping[str, int]:
        """Key id -> the last UTC day (since the epoch) on which it called a model, of those that did in LAST_DAYS."""
        ...

    async def records(self) -> Mapping[bytes, KeyRecord]:
        """Every key by its hash: what a KeyRing holds."""
        ...

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None: ...

    async def litellms(self) -> Collection[str]:
        """The ids of those that were LiteLLM's, whatever their secrets are by now."""
        ...

    async def has_litellms(self) -> bool:
        """Whether any key was LiteLLM's, so that secrets are known as it hashes them too."""
        ...


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


EntryOrder = Literal["newest", "cost", "total_time", "first_token"]
"""All but the newest: the largest first, what has no such figure last."""


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
    def batch_id(self) -> str | None: ...
    @property
    def status(self) -> Status | None: ...
    @property
    def order(self) -> EntryOrder: ...
    @property
    def before(self) -> str | None: ...
    @property
    def limit(self) -> int: ...


AdjustmentKind = Literal["reprice", "refund", "reconciliation"]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One correction of one request. `reference` is the prices version or invoice: the same one books once. `after` is
    how many price corrections of the request it takes into account: it books only while there are so many."""

    request_id: str
    kind: AdjustmentKind
    reference: str
    amount_pico_usd: int
    reason: str
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Correction:
    """An adjustment as it was booked. Who booked it is in the audit log."""

    at_us: int
    booked: Adjustment


@dataclass(frozen=True, slots=True)
class BatchCost:
    """What all requests of one batch came to so far, corrections included. Those without a price are in no sum."""

    requests: int
    unpriced_requests: int
    input_tokens: int
    output_tokens: int
    cost_pico_usd: int


class EntryStore(Protocol):
    """Reads entries that reached the database (within about two seconds of their settlement)."""

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        """In the order wanted; of equals the newest first."""
        ...

    async def get(self, request_id: str) -> Entry | None: ...

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        """Each request's in the order in which they were booked; requests without any are left out."""
        ...


class BatchBooks(EntryStore, Protocol):
    """An EntryStore that adds up what a batch came to."""

    async def batch_cost(self, batch_id: str, *, team: str | None = None) -> BatchCost:
        """Of its requests that are kept, or those of one team; all zero where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """What one day and some names of one model must be corrected by. `reference` books once."""

    since_us: int
    until_us: int
    provider: str
    upstream_models: tuple[str, ...]
    reference: str
    amount_pico_usd: int
    reason: str


FeedbackSource = Literal["caller", "shadow", "judge", "repeat", "format"]
"""Who says so: the caller over `/v1/feedback`, a program that compared a shadow call's answers, a judge model. The last
two nobody said: see gateway.learning.implied_feedback."""
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
    """Judgements on answers, append-only: the last of a key or program on a request is what it thinks now."""

    async def add(self, batch: Sequence[Feedback]) -> None: ...

    async def after(self, number: int, *, limit: int = 1000) -> Sequence[Feedback]:
        """In order of arrival, those that came after `number`: what a learner that stopped there goes on with."""
        ...

    async def add_shadow(self, call: ShadowCall) -> None: ...

    async def shadows(self, since_us: int, until_us: int) -> Sequence[ShadowCall]:
        """Calls made in the period, oldest first."""
        ...
