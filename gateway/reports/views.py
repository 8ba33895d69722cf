"""Queries and answers of the reports on costs, GPU hours and break-even, shared by HTTP and the command line."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from gateway.economics.report import BreakEvenReport
from gateway.instants import microseconds
from gateway.moments import Moment, localised, require_zone
from gateway.reports.dimensions import as_dimensions, filters_of
from gateway.reports.row_order import is_order
from gateway.strict import Strict


class PeriodQuery(Strict):
    """ISO 8601 dates or times, UTC unless they state a zone; `until` is exclusive. Default: the last 30 days."""

    since: Moment | None = None
    until: Moment | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        return microseconds(self.since), microseconds(self.until)

    def compared(self) -> tuple[int | None, int | None]:
        """Bounds of the period to compare with; None: no comparison."""
        return None, None


class BooksQuery(PeriodQuery):
    """`as_of` leaves out corrections booked at or after that time: what a month came to when it was closed."""

    as_of: Moment | None = Field(default=None, description="Leaves out corrections booked at or after this time")

    def as_of_us(self) -> int | None:
        return microseconds(self.as_of)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which groups a report lists one by one, and in what order; None: all, or the report's own order. `dearest` is
    how many of the most expensive groups it lists in addition."""

    limit: int | None = None
    offset: int = 0
    order: str | None = None
    dearest: int = 0

    @property
    def place(self) -> slice:
        return slice(self.offset, None if self.limit is None else self.offset + self.limit)


ALL = Shown()
COMPARED = (
    "Give both: the bounds of a period to compare with. Its spend is returned as `earlier`, which is null unless the "
    "ledger covers that whole period"
)


class CostQuery(BooksQuery):
    """Group by one to three dimensions, comma-separated; filter by team, model and so on."""

    FILTERS: ClassVar = ("model", "team", "project", "key", "backend", "provider", "rule", "tag", "end_user")

    _localise = model_validator(mode="before")(localised)

    by: Annotated[str, AfterValidator(as_dimensions)] = "model"
    model: str | None = Field(default=None, max_length=120)
    team: str | None = Field(default=None, max_length=64)
    project: str | None = Field(default=None, max_length=64)
    key: str | None = Field(default=None, max_length=64)
    backend: str | None = Field(default=None, max_length=120)
    provider: str | None = Field(default=None, max_length=120)
    rule: str | None = Field(default=None, max_length=120)
    tag: str | None = Field(default=None, max_length=64)
    end_user: str | None = Field(
        default=None,
        max_length=256,
        description="The customer of an app, if `record_end_users` is set. Groups by end user, and this filter, add up "
        "single requests: without those that retention has deleted, and without percentiles",
    )
    time_zone: Annotated[str, AfterValidator(require_zone)] = Field(
        default="UTC",
        max_length=64,
        description="Time zone of days, weeks, months and quarters, an IANA name such as Europe/Berlin. Also of "
        "`since` and `until`, unless they state one",
    )
    costs_alone: bool = Field(
        default=False,
        description="Faster: leaves out percentiles, idle rent and savings, which are then null or empty",
    )

    def dimensions(self) -> list[str]:
        return self.by.split(",")

    def filters(self) -> dict[str, str | None]:
        return filters_of({name: getattr(self, name) for name in self.FILTERS})

    def shown(self) -> Shown:
        return ALL


class ComparedQuery(PeriodQuery):
    """A period, optionally compared with another."""

    compare_since: Moment | None = Field(default=None, description=COMPARED)
    compare_until: Moment | None = Field(default=None, description=COMPARED)

    def compared(self) -> tuple[int | None, int | None]:
        return microseconds(self.compare_since), microseconds(self.compare_until)


class CostTableQuery(CostQuery, ComparedQuery):
    """One page of the groups, in any order, optionally compared with another period."""

    limit: int | None = Field(
        default=None, ge=1, le=100_000, description="The most rows to return; all other groups are summed in `others`"
    )
    offset: int = Field(default=0, ge=0, le=1_000_000, description="How many groups to skip before the first row")
    order: str | None = Field(
        default=None,
        max_length=20,
        description="Sorts all groups, before paging: spend, requests, input, cached, output, input-price, "
        "output-price or request-price, largest first; or a dimension of `by`, by name. A leading - reverses the "
        "order. Default: chronological if grouped by time, otherwise most expensive first",
    )
    dearest: int = Field(
        default=0,
        ge=0,
        le=100,
        description="How many of the most expensive groups to return in addition, whatever the page: for charts",
    )

    @field_validator("order")
    @classmethod
    def _names_a_column(cls, order: str | None, known: ValidationInfo) -> str | None:
        by = known.data.get("by")  # none where it is refused itself
        if order is not None and by is not None and not is_order(order, by.split(",")):
            raise ValueError("takes a figure such as spend, or a dimension of `by`; a leading - reverses the order")
        return order

    def shown(self) -> Shown:
        return Shown(self.limit, self.offset, self.order, self.dearest)


class CostRow(BaseModel):
    """One group. Amounts are exact decimal text in dollars; prices per token are null if there were no tokens.

    `unpriced_requests` have no known price, not even through a correction, and are in no amount except the bounds:
    `cost_lower_usd` is the least and `cost_upper_usd` the most that all requests may have cost when they were booked,
    without corrections. The upper bound is null if a request has none. `simulated_usd` is the part of the cost that no
    provider will bill.
    """

    group: dict[str, str | None]
    requests: int
    successful_requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    web_searches: int
    file_searches: int
    other_tool_calls: int
    gpu_seconds: float
    cost_usd: str
    list_cost_usd: str
    input_usd_per_mtok: str | None
    output_usd_per_mtok: str | None
    blended_usd_per_mtok: str | None
    cost_per_request_usd: str | None
    cost_per_successful_request_usd: str | None
    corrections_usd: str
    unpriced_requests: int
    estimated_requests: int
    simulated_requests: int
    simulated_usd: str
    cost_lower_usd: str
    cost_upper_usd: str | None
    time_to_first_token_p50_seconds: float | None
    time_to_first_token_p95_seconds: float | None
    time_to_first_token_p99_seconds: float | None
    decode_tokens_per_second_p50: float | None
    decode_tokens_per_second_p5: float | None


class Savings(BaseModel):
    """What the same tokens would have cost at another model at today's prices, minus what they did cost at the prices
    of their time, idle rent included. Operations that no chat model performs (embeddings, images, audio, moderation,
    rerank) are on neither side."""

    against: str
    would_have_cost_usd: str
    saved_usd: str
    saved_share: float | None
    covered_requests: int


class IdleCost(BaseModel):
    """Rent of your own engine that no request used: rent = used + idle."""

    rent_usd: str
    used_usd: str
    idle_usd: str
    utilisation: float


class EarlierCost(BaseModel):
    """What a group came to in the period compared with."""

    requests: int
    unpriced_requests: int
    cost_usd: str


class EarlierCosts(BaseModel):
    """The period compared with: its total; one item for each of the report's `rows`, null if that group had no request
    then; and the sum of the other groups. `ceased` groups had requests then and have none now: the report lists them
    as rows of zeros. If the report is grouped by time, only totals are compared, and `is_by_group` is false."""

    since: datetime
    until: datetime
    total: EarlierCost
    is_by_group: bool
    rows: list[EarlierCost | None]
    others: EarlierCost | None
    ceased: int


class CostTable(BaseModel):
    """Groups and their total. `rows` is the requested page of all `groups` (their number); `others` sums the remaining
    groups, without percentiles, and is null if there are none. Rows and others add up to the total exactly, except by
    tag: a request counts under each of its tags. `key_names` maps ids to names for all keys grouped by, those in
    `others` included; names need not be unique. `unallocated_*` is spend without an owner when grouped by team, project
    or tag; null if not grouped by one, or filtered to one owner. `shadow_usd`, the cost of shadow calls, and
    `judge_usd`, that of judging their answers, are part of the sums. Idle rent is in neither the rows nor the total; it
    and the savings, which include it, are given only without filters. `saved_by_prompt_caches_usd` is what cached input
    saved at providers, minus the extra cost of cache writes.
    """

    since: datetime
    until: datetime
    books_begin: datetime | None = Field(description="The ledger's first hour with a request; null: it is empty")
    time_zone: str
    as_of: datetime | None = Field(description="Corrections booked at or after this are left out; null: all count")
    by: list[str]
    key_names: dict[str, str]
    groups: int
    rows: list[CostRow]
    others: CostRow | None
    dearest: list[CostRow]
    total: CostRow
    earlier: EarlierCosts | None
    unallocated_usd: str | None
    unallocated_share: float | None
    shadow_usd: str
    judge_usd: str
    idle: IdleCost | None
    savings: list[Savings]
    saved_by_prompt_caches_usd: str


class SpendPoint(BaseModel):
    """Spend of one model in one bucket of time."""

    start: datetime
    model: str
    requests: int
    cost_usd: str


class Overview(BaseModel):
    """The key figures of one period. `unallocated_usd` is spend without a team; shadow calls (`shadow_usd`) and their
    judge (`judge_usd`) are part of it, as they have none."""

    since: datetime
    until: datetime
    bucket: Literal["hour", "day"]
    total: CostRow
    models: list[CostRow]
    savings: list[Savings]
    idle: IdleCost | None
    unallocated_share: float | None
    unallocated_usd: str
    shadow_usd: str
    judge_usd: str
    spend: list[SpendPoint]
    books_begin: datetime | None = Field(description="The ledger's first hour with a request; null: it is empty")
    earlier: EarlierCosts | None


class UtilisationPoint(BaseModel):
    """One hour: GPU-seconds used and paid for."""

    start: datetime
    used_gpu_seconds: float
    paid_gpu_seconds: float
    requests: int


class Utilisation(BaseModel):
    """How much of the paid GPU time requests used, hour by hour. The rest is idle. `backends`: whose GPUs these are.

    `break_even_utilisation` is the share of capacity above which owning pays, `break_even_busy_share` the share of GPU
    time, in batches of the size they had: smaller ones take more time for the same requests. Of several backends both
    are null: each has its own.
    """

    since: datetime
    until: datetime
    is_configured: bool
    gpu_hour_usd: str
    replicas: int
    backends: list[str]
    idle: IdleCost | None
    break_even_utilisation: float | None
    break_even_busy_share: float | None
    hours: list[UtilisationPoint]


class BreakEvenQuery(PeriodQuery):
    """Assumptions to vary: GPU price, replicas, hosted prices and volume. Factors multiply the observed values.

    `backend`: whose GPUs; when left out the bundled engine's or, if it is off, the first backend's of your own.
    """

    backend: str | None = Field(default=None, max_length=120)
    gpu_hour_usd: float | None = Field(default=None, ge=0, le=1000)
    replicas: int | None = Field(default=None, ge=1, le=100)
    hosted_model: str | None = Field(default=None, max_length=120)
    hosted_price_factor: float = Field(default=1.0, gt=0, le=100)
    volume_factor: float = Field(default=1.0, ge=1e-6, le=10_000)
    fixed_usd_per_month: float | None = Field(default=None, ge=0, le=10_000_000)
    purchase_usd: float | None = Field(default=None, gt=0, le=100_000_000)
    yearly_price_factor: float = Field(default=1.0, gt=0, le=10)
    yearly_volume_factor: float = Field(default=1.0, gt=0, le=100)


class CurvePoint(BaseModel):
    """Monthly bills at one volume: with everything hosted, and with this many replicas alongside."""

    requests_per_day: float
    hosted_usd: float
    owned_usd: float
    owned_low_usd: float | None
    owned_high_usd: float | None
    replicas: int


class PayBack(BaseModel):
    """Buying the GPUs instead of renting them: after how many months the hosted calls they save have paid for them.

    `months` is null if they never do: the most is recovered by `best_month`, when hosted prices have fallen too far.
    """

    purchase_usd: float
    months: int | None
    best_recovered_usd: float
    best_month: int


class BreakEvenView(BaseModel):
    """The report as the command line prints it, and curves to draw from the same model."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    report: BreakEvenReport
    curve: list[CurvePoint]
    payback: PayBack | None
    hosted_models: list[str]
    backends: list[str]
    inputs: dict[str, float | str]


class CostReports(Protocol):
    async def costs(self, query: CostQuery) -> CostTable: ...

    async def overview(self, query: PeriodQuery) -> Overview: ...


class GpuReports(Protocol):
    async def utilisation(self, query: PeriodQuery) -> Utilisation: ...

    async def break_even(self, query: BreakEvenQuery) -> BreakEvenView:
        """Raises InvalidRequest, with a sentence, if there is too little traffic to say anything."""
        ...
