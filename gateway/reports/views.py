"""What the reports of costs, GPU hours and break-even are asked and answer, over HTTP and on the command line alike."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from gateway.economics.report import BreakEvenReport
from gateway.instants import microseconds
from gateway.moments import Moment, localised, require_zone
from gateway.reports.row_order import is_order

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
    "tag",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
]


def _dimensions(text: str) -> str:
    known = Dimension.__args__  # pyright: ignore[reportAttributeAccessIssue]
    names = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not 1 <= len(names) <= 3 or len(set(names)) != len(names):
        raise ValueError(f"takes one to three different names of: {', '.join(known)}")
    return ",".join(names)


class PeriodQuery(BaseModel):
    """ISO 8601 dates or times, UTC unless they say otherwise; `until` is exclusive. Default: the last 30 days."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: Moment | None = None
    until: Moment | None = None

    def bounds(self) -> tuple[int | None, int | None]:
        return microseconds(self.since), microseconds(self.until)

    def compared(self) -> tuple[int | None, int | None]:
        """Another time beside it; None: no other."""
        return None, None


class BooksQuery(PeriodQuery):
    """`as_of` leaves out corrections that were booked from then on: what a month came to when it was closed."""

    as_of: Moment | None = Field(default=None, description="Corrections booked from this time on are left out")

    def as_of_us(self) -> int | None:
        return microseconds(self.as_of)


@dataclass(frozen=True, slots=True)
class Shown:
    """Which groups of a report are told one by one, and in what order; None: all, or the report's own. So many of the
    `dearest` are told besides."""

    limit: int | None = None
    offset: int = 0
    order: str | None = None
    dearest: int = 0

    @property
    def place(self) -> slice:
        return slice(self.offset, None if self.limit is None else self.offset + self.limit)


ALL = Shown()
COMPARED = (
    "With the other one: a time whose spend stands beside this one's, as `earlier`, which is null where the ledger "
    "begins within or after it: a part is no measure for a whole"
)


class CostQuery(BooksQuery):
    """Group by one to three dimensions, comma separated; keep only rows of the given team, model, ..."""

    FILTERS: ClassVar = ("model", "team", "project", "key", "backend", "provider", "rule", "tag")

    _localise = model_validator(mode="before")(localised)

    by: Annotated[str, AfterValidator(_dimensions)] = "model"
    model: str | None = Field(default=None, max_length=120)
    team: str | None = Field(default=None, max_length=64)
    project: str | None = Field(default=None, max_length=64)
    key: str | None = Field(default=None, max_length=64)
    backend: str | None = Field(default=None, max_length=120)
    provider: str | None = Field(default=None, max_length=120)
    rule: str | None = Field(default=None, max_length=120)
    tag: str | None = Field(default=None, max_length=64)
    time_zone: Annotated[str, AfterValidator(require_zone)] = Field(
        default="UTC",
        max_length=64,
        description="Whose days and months: an IANA name such as Europe/Berlin. `since` and `until` are in it as well, "
        "unless they say otherwise",
    )
    costs_alone: bool = Field(
        default=False,
        description="Without percentiles, idle rent and savings, which are null or empty then, it is there sooner",
    )

    def dimensions(self) -> list[str]:
        return self.by.split(",")

    def filters(self) -> dict[str, str]:
        return {name: value for name in self.FILTERS if (value := getattr(self, name)) is not None}

    def shown(self) -> Shown:
        return ALL


class CostTableQuery(CostQuery):
    """So many groups, in any order, beside what they cost in another time."""

    limit: int | None = Field(
        default=None, ge=1, le=100_000, description="At most so many rows; all other groups are one, `others`"
    )
    offset: int = Field(default=0, ge=0, le=1_000_000, description="So many groups stand before the first row")
    order: str | None = Field(
        default=None,
        max_length=20,
        description="Of all groups, before any are left out: spend, requests, input, cached, output, input-price, "
        "output-price or request-price, the largest first, or one of `by`, by name; with - before it the other way "
        "round. Without it the dearest first, or in the order of their times",
    )
    dearest: int = Field(
        default=0,
        ge=0,
        le=100,
        description="So many groups that cost most, besides the rows: a chart of any page has them",
    )
    compare_since: Moment | None = Field(default=None, description=COMPARED)
    compare_until: Moment | None = Field(default=None, description=COMPARED)

    @field_validator("order")
    @classmethod
    def _names_a_column(cls, order: str | None, known: ValidationInfo) -> str | None:
        by = known.data.get("by")  # none where it is refused itself
        if order is not None and by is not None and not is_order(order, by.split(",")):
            raise ValueError("takes a figure such as spend or requests, or one of `by`; with - before it turned round")
        return order

    def shown(self) -> Shown:
        return Shown(self.limit, self.offset, self.order, self.dearest)

    def compared(self) -> tuple[int | None, int | None]:
        return microseconds(self.compare_since), microseconds(self.compare_until)


class OverviewQuery(PeriodQuery):
    """A period, beside another one."""

    compare_since: Moment | None = Field(default=None, description=COMPARED)
    compare_until: Moment | None = Field(default=None, description=COMPARED)

    def compared(self) -> tuple[int | None, int | None]:
        return microseconds(self.compare_since), microseconds(self.compare_until)


class CostRow(BaseModel):
    """One group. Dollars are exact decimal text; per-token prices are None where there were no tokens to divide by.

    `unpriced_requests` have no known price, by a correction either, and are in no sum of dollars but the bounds:
    `cost_lower_usd` is the least that all requests were when they were booked, corrections left out, and
    `cost_upper_usd` the most, None where one of them has no bound. `simulated_usd` is the part of the cost that no
    provider will ever bill.
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
    """What the same tokens would have cost elsewhere at today's price, less what they cost at the prices of their own
    time, idle rent included. What no chat model makes (embeddings, images, sound, moderation, rankings) is on neither
    side."""

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
    """What a group came to in the time to compare with."""

    requests: int
    unpriced_requests: int
    cost_usd: str


class EarlierCosts(BaseModel):
    """Another time: all of it, each of the report's `rows` in their order, null where such a group had no request, and
    what `others` came to. Groups that had requests then and have none now are among the groups of the report, as rows
    of nothing: so many `ceased`. Of groups of a time the total alone is compared: it `is_by_group` otherwise."""

    since: datetime
    until: datetime
    total: EarlierCost
    is_by_group: bool
    rows: list[EarlierCost | None]
    others: EarlierCost | None
    ceased: int


class CostTable(BaseModel):
    """Groups, and the whole. `rows` are those asked for of so many `groups`, and `others` is what all other groups come
    to, without percentiles; null where there are none. Rows and others add up to the total, to the pico-dollar; of
    tags they come to more, as a request counts in each of its tags. `key_names` are of the keys grouped by, those of
    `others` among them; two keys may have one name. `unallocated` is what
    has no owner among the team, project or tag grouped by, None where only one owner's was asked for; shadow calls are
    in the sums and stand apart here. Idle rent is in no row and not in the total; it and savings, which count it, are
    of everything and so only there without filters. `saved_by_prompt_caches_usd` is what reads from providers' caches
    cost less than fresh input, less what writes cost more."""

    since: datetime
    until: datetime
    books_begin: datetime | None = Field(description="The ledger's first hour with a request; None: it has none")
    time_zone: str
    as_of: datetime | None = Field(description="Corrections booked from then on are left out; None: all count")
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
    """The first page: one period in a dozen numbers."""

    since: datetime
    until: datetime
    bucket: Literal["hour", "day"]
    total: CostRow
    models: list[CostRow]
    savings: list[Savings]
    idle: IdleCost | None
    unallocated_share: float | None
    unallocated_usd: str
    spend: list[SpendPoint]
    books_begin: datetime | None = Field(description="The ledger's first hour with a request; None: it has none")
    earlier: EarlierCosts | None


class UtilisationPoint(BaseModel):
    """One hour: GPU-seconds used of those paid for."""

    start: datetime
    used_gpu_seconds: float
    paid_gpu_seconds: float
    requests: int


class Utilisation(BaseModel):
    """How much of the paid GPU time requests used, hour by hour. The rest is the idle line."""

    since: datetime
    until: datetime
    is_configured: bool
    gpu_hour_usd: str
    replicas: int
    idle: IdleCost | None
    break_even_utilisation: float | None
    hours: list[UtilisationPoint]


class BreakEvenQuery(PeriodQuery):
    """What if: other GPU price, replicas, hosted prices and volume. Factors multiply what was observed."""

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
    """Monthly bills at a volume: everything hosted, and this many GPUs beside it."""

    requests_per_day: float
    hosted_usd: float
    owned_usd: float
    owned_low_usd: float | None
    owned_high_usd: float | None
    replicas: int


class PayBack(BaseModel):
    """Buying the GPUs instead of renting them: after how many months the hosted calls they save have paid for them.

    `months` None: never; the most is recovered by `best_month` and then hosted prices have fallen too far.
    """

    purchase_usd: float
    months: int | None
    best_recovered_usd: float
    best_month: int


class BreakEvenView(BaseModel):
    """The report as the command line has it, and the curves that a page draws from the same model."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    report: BreakEvenReport
    curve: list[CurvePoint]
    payback: PayBack | None
    hosted_models: list[str]
    inputs: dict[str, float | str]


class Reports(Protocol):
    """Where the figures come from. Bounds are microseconds; None means the default of PeriodQuery."""

    async def costs(self, query: CostQuery) -> CostTable: ...

    async def overview(self, query: PeriodQuery) -> Overview: ...

    async def utilisation(self, query: PeriodQuery) -> Utilisation: ...

    async def break_even(self, query: BreakEvenQuery) -> BreakEvenView:
        """Raises InvalidRequest, in a sentence, when there is too little to say anything."""
        ...
