"""What the rest of the gateway needs from a database, as protocols and values. Names no technology.

The store of the rules is in rulebook/versions.py, the ledger's protocol beside its records (ledger/entry.py),
the sums that reports read in sums.py.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, TypedDict

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
    """Fields to change; omitted ones stay. None means nobody, all models, or no expiry, as in NewKey."""

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
"""How many days back the last use of a key is looked for."""


class KeyStore(Protocol):
    """Where keys are stored. Implementations record every write in the audit log."""

    async def create(
        self, new: NewKey, *, author: str, limits: Mapping[str, Any] | None = None
    ) -> tuple[ListedKey, str]:
        """The key and its secret, which cannot be read again. Limits are in the format of gateway.limits.admission."""
        ...

    async def list(self, ids: Collection[str] | None = None) -> Sequence[ListedKey]:
        """Newest first, including revoked ones; only these ids if given."""
        ...

    async def revoke(self, key_id: str, *, author: str) -> bool:
        """False when there is no such key."""
        ...

    async def limits(self) -> Mapping[str, Mapping[str, Any]]:
        """Key id -> its current limits, for keys that have any."""
        ...

    async def change(self, key_id: str, change: KeyChange, *, author: str) -> bool:
        """False when there is no such key. Existing entries keep the team and tags of their time."""
        ...

    async def last_days(self) -> Mapping[str, int]:
        """Key id -> the last UTC day (since the epoch) on which it called a model, for keys used within LAST_DAYS."""
        ...

    async def records(self) -> Mapping[bytes, KeyRecord]:
        """Every key by its hash: the contents of a KeyRing."""
        ...

    async def find_by_hash(self, key_hash: bytes) -> KeyRecord | None: ...

    async def litellms(self) -> Collection[str]:
        """Ids of keys imported from LiteLLM, including those rotated since."""
        ...

    async def has_litellms(self) -> bool:
        """Whether any key was imported from LiteLLM, so that LiteLLM's hash has to be tried as well."""
        ...


@dataclass(frozen=True, slots=True)
class ClassifierChoice:
    """A change of the classifier in force, and its audit record. `history`: JSON of every choice up to this one;
    `number` is one more than the last change's. Of artefacts, the files of `artefacts` alone stay in the database."""

    number: int
    history: str
    at_us: int
    author: str
    action: str
    subject: str
    reason: str
    artefacts: Collection[str]


class ClassifierStore(Protocol):
    """What gateway.learning.shared_versions shares. Files are named by their path, and never change."""

    async def newest(self) -> int:
        """The number of the last change; 0 if there was none."""
        ...

    async def history(self, number: int) -> str: ...

    async def choose(self, choice: ClassifierChoice) -> bool:
        """False, changing nothing, if another change has this number already."""
        ...

    async def keep(self, files: Mapping[str, bytes]) -> None: ...

    async def paths(self) -> Collection[str]: ...

    async def read(self, paths: Collection[str]) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Spending limit for a calendar month (UTC); an empty `name` covers everything. If it `stops`, requests beyond it
    are refused."""

    scope: BudgetScope
    name: str
    month_pico_usd: int
    set_by: str
    set_at_us: int
    stops: bool = False


class BudgetStore(Protocol):
    """Implementations record both writes in the audit log."""

    async def budgets(self) -> Sequence[Budget]:
        """The overall budget first, then teams and projects by name."""
        ...

    async def set(self, budget: Budget) -> None:
        """Creates or replaces the budget of its scope and name."""
        ...

    async def remove(self, scope: BudgetScope, name: str, *, author: str) -> bool:
        """False when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One link of the hash chain. `digest` (hexadecimal) covers the record and the preceding digest."""

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
    """`first_broken` is the sequence number of the first record that does not fit the chain."""

    is_intact: bool
    records: int
    first_broken: int | None


class AuditLog(Protocol):
    """Append-only. Stores append to it in the transaction of the change itself."""

    async def page(self, *, before: int | None, limit: int) -> Sequence[AuditRecord]:
        """Newest first, records with a sequence below `before`."""
        ...

    async def verify(self) -> Verified:
        """Recomputes every link."""
        ...


EntryOrder = Literal["newest", "cost", "total_time", "first_token"]
"""All but `newest` sort the largest first; entries without the figure come last."""


@dataclass(frozen=True, slots=True)
class EntryWanted:
    """A filter: all fields that are not None must match. `before` is the request id of the previous page's last row."""

    since: datetime | None = None
    until: datetime | None = None
    key_id: str | None = None
    team: str | None = None
    project: str | None = None
    model: str | None = None
    backend: str | None = None
    rule: str | None = None
    tag: str | None = None
    batch_id: str | None = None
    end_user: str | None = None
    status: Status | None = None
    order: EntryOrder = "newest"
    before: str | None = None
    limit: int = 50


AdjustmentKind = Literal["reprice", "refund", "reconciliation"]


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One correction of one request. `reference` is the prices version or invoice; each books only once. `after` is the
    number of price corrections of the request that were taken into account: it books only if that is still their
    number."""

    request_id: str
    kind: AdjustmentKind
    reference: str
    amount_pico_usd: int
    reason: str
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Correction:
    """An adjustment as booked. Who booked it is in the audit log."""

    at_us: int
    booked: Adjustment


@dataclass(frozen=True, slots=True)
class BatchCost:
    """Totals of a batch so far, corrections included. Unpriced requests are in no sum."""

    requests: int
    unpriced_requests: int
    input_tokens: int
    output_tokens: int
    cost_pico_usd: int


class EntryStore(Protocol):
    """Reads entries that reached the database (within about two seconds of settlement)."""

    async def find(self, wanted: EntryWanted) -> Sequence[Entry]:
        """In the requested order; ties newest first."""
        ...

    async def get(self, request_id: str) -> Entry | None: ...

    async def corrections(self, request_ids: Sequence[str]) -> Mapping[str, Sequence[Correction]]:
        """Per request, in the order of booking; requests without corrections are left out."""
        ...


class BatchBooks(EntryStore, Protocol):
    """An EntryStore that also totals batches."""

    async def batch_cost(self, batch_id: str, *, team: str | None = None) -> BatchCost:
        """Of the batch's stored requests, or of one team's; all zero when there are none."""
        ...


class Explored(NamedTuple):
    """What a settled request that tried another model than the preferred one cost, and was expected to cost."""

    cost_pico_usd: int | None
    expected_cost_pico_usd: int | None
    exploration_pico_usd: int
    """The part of the expected cost that is beyond the preferred model's."""

    @property
    def extra_pico_usd(self) -> int:
        """Actual cost beyond the preferred model's expected cost; the expected difference if the price is unknown."""
        if self.cost_pico_usd is None or self.expected_cost_pico_usd is None:
            return self.exploration_pico_usd
        return max(0, self.cost_pico_usd - (self.expected_cost_pico_usd - self.exploration_pico_usd))


class RuleBooks(EntryStore, Protocol):
    """An EntryStore that also tells what rules explored."""

    def explored(self, rule: str, since_us: int, until_us: int) -> AsyncIterator[Sequence[Explored]]:
        """Of the requests accepted from `since_us` to before `until_us` and decided by the rule, a part at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """A correction for one day and some upstream models. Each `reference` of a provider books only once."""

    since_us: int
    until_us: int
    provider: str
    upstream_models: tuple[str, ...]
    reference: str
    amount_pico_usd: int
    reason: str


FeedbackSource = Literal["caller", "judge", "shadow", "repeat", "format"]
"""Who gave it: the caller through `/v1/feedback`, or a judge model. The others are inferred, not given: from a shadow
call's answers by a program, or see gateway.learning.implied_feedback. All but the caller's have the request's key."""
FeedbackKind = Literal["score", "label", "verifier"]
"""Origin of the score: a number as given, a good/bad label (a judge model's too: the mean of both orders), or computed
from the answer by a program."""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Quality of the answer to one request, from 0 to 1. `number` counts arrivals and is 0 until stored."""

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
    """`request_id` is the entry of the second answer, `of_request_id` of the answer the caller saw."""

    request_id: str
    of_request_id: str
    at_us: int
    propensity: float


class FeedbackStore(Protocol):
    """Judgements on answers, append-only: the latest of a key or program on a request is the one that counts."""

    async def add(self, batch: Sequence[Feedback]) -> None: ...

    async def newest(self) -> int:
        """The number of the last that arrived, 0 if there is none."""
        ...

    async def after(self, number: int, *, limit: int = 1000) -> Sequence[Feedback]:
        """Feedback that arrived after `number`, in order of arrival: where a learner resumes."""
        ...

    async def add_shadow(self, call: ShadowCall) -> None: ...

    async def shadows(self, since_us: int, until_us: int) -> Sequence[ShadowCall]:
        """Calls made in the period, oldest first."""
        ...
