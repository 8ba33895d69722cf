"""The shape of a break-even report: computed once, shown everywhere (CLI, admin API, web, docs).

Ledger sums are exact; figures of the model are rounded to a pico-dollar. Both are decimal dollars, `*_usd`, which
msgspec writes as text. Monthly figures are for `month_hours`. None means that there is no such number (idle, never).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Discipline = Literal["overflow", "fluid"]
"""How served requests are counted: instant overflow when no slot is free (needs a curve), or the fluid bound."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What the ledger recorded in the period; nothing here is modelled."""

    start: str
    end: str
    hours: int
    days: int
    requests: int
    requests_per_day: float
    input_tokens_per_request: float
    output_tokens_per_request: float
    cached_input_share: float
    ledger_cost_usd: Decimal
    list_cost_usd: Decimal
    unpriced_requests: int
    estimated_share: float
    aborted_requests: int


@dataclass(frozen=True, slots=True)
class UnitEconomics:
    """One request and one replica. `break_even_utilisation` above 1 means never; null: the alternative is free."""

    gpu_seconds_per_request: float
    requests_per_second_per_replica: float
    replica_hour_usd: Decimal
    hosted_usd_per_request: Decimal
    value_usd_per_hour: Decimal
    break_even_utilisation: float | None
    peak_to_mean: float


@dataclass(frozen=True, slots=True)
class Owned:
    """The plan's own fleet over the period: if it already runs, as the books have it, at each hour's own price; else
    expected, at the plan's.

    `utilisation` is the share of capacity that requests took, as break-even counts it. `busy_share` is the share of
    time in which anything was computed: higher if batches were smaller than the GPU can take. The rest of the time is
    the idle line.
    """

    replicas: int
    is_measured: bool
    paid_hours: int
    utilisation: float
    busy_share: float
    rent_usd: Decimal
    idle_usd: Decimal
    allocated_usd_per_request: Decimal | None
    busy_usd_per_request: Decimal
    marginal_usd_per_request: Decimal


@dataclass(frozen=True, slots=True)
class StaircaseRow:
    """A month with `replicas` always on: the saving and rent of the last replica, and the whole bill."""

    replicas: int
    value_usd: Decimal
    rent_usd: Decimal
    pays: bool
    fluid_total_usd: Decimal
    overflow_total_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Month:
    """Bills of one month under each way of running, fixed costs included wherever a GPU is kept."""

    hours: float
    all_hosted_usd: Decimal
    plan_usd: Decimal
    plan_saving_usd: Decimal
    best_replicas: int
    best_usd: Decimal
    hourly_scaling_usd: Decimal
    self_hosted_replicas: int
    self_hosted_usd: Decimal


@dataclass(frozen=True, slots=True)
class Volume:
    """A break-even volume at the observed mix: requests per day, and their monthly bill if hosted."""

    requests_per_day: float
    hosted_usd_per_month: Decimal


@dataclass(frozen=True, slots=True)
class VolumeInterval:
    """Owning everything is cheaper between these volumes; if `end` is null, there is no upper limit."""

    start: Volume
    end: Volume | None


@dataclass(frozen=True, slots=True)
class BreakEvenVolume:
    """`hybrid` is the smallest volume at which some fleet pays off alongside the hosted model; null: none does."""

    hybrid: Volume | None
    hybrid_replicas: int | None
    self_hosted: tuple[VolumeInterval, ...]


@dataclass(frozen=True, slots=True)
class Confidence:
    """5 % to 95 % intervals, resampled by whole days."""

    days: int
    resamples: int
    saving_low_usd: Decimal
    saving_middle_usd: Decimal
    saving_high_usd: Decimal
    utilisation_low: float
    utilisation_high: float
    probability_owning_is_cheaper: float


@dataclass(frozen=True, slots=True)
class Swing:
    """The plan's monthly saving with one input a quarter lower and a quarter higher, all else unchanged."""

    input: str
    saving_at_minus_25_percent_usd: Decimal
    saving_at_plus_25_percent_usd: Decimal


@dataclass(frozen=True, slots=True)
class BreakEvenReport:
    plan: str
    plan_quality: float | None
    hosted: str
    hosted_quality: float | None
    discipline: Discipline
    observed: Observed
    unit: UnitEconomics
    owned: Owned
    month: Month
    staircase: tuple[StaircaseRow, ...]
    volume: BreakEvenVolume
    confidence: Confidence | None
    tornado: tuple[Swing, ...]
    verdict: str
    caveats: tuple[str, ...]
