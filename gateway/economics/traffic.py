"""Hourly traffic from the ledger, and what it is compared with: a GPU plan and a hosted model.

Everything here is exact: integer pico-USD and token counts. `demand` converts it to the floats of the model.
"""

from dataclasses import dataclass
from fractions import Fraction

from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import HOURS_30_DAYS
from gateway.instants import HOUR_US


@dataclass(frozen=True, slots=True)
class HourlyTraffic:
    """One hour of one model, from the ledger's rollups. Costs exclude the `unpriced_requests`.

    `aborted_requests`: the caller disconnected or the answer broke off; they use GPU-seconds and earn nothing.
    """

    hour_start_us: int
    model: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    gpu_seconds: float
    cost_pico_usd: int
    list_cost_pico_usd: int
    unpriced_requests: int = 0
    estimated_requests: int = 0
    aborted_requests: int = 0


@dataclass(frozen=True, slots=True)
class Period:
    """Whole hours, `start_us` inclusive to `end_us` exclusive: microseconds since the Unix epoch, UTC."""

    start_us: int
    end_us: int

    def __post_init__(self) -> None:
        if self.start_us % HOUR_US or self.end_us % HOUR_US or self.end_us <= self.start_us:
            raise EconomicsError(f"a period is one or more whole UTC hours, not {self.start_us}..{self.end_us}")

    @property
    def hours(self) -> int:
        return (self.end_us - self.start_us) // HOUR_US

    def holds(self, row: HourlyTraffic) -> bool:
        return self.start_us <= row.hour_start_us < self.end_us


@dataclass(frozen=True, slots=True)
class HostedAlternative:
    """What the same requests would cost elsewhere, at a single price list: the question is what to do next.

    `quality` is the model's q, stated in every comparison.
    """

    name: str
    input_pico_usd_per_token: int
    cached_input_pico_usd_per_token: int
    output_pico_usd_per_token: int
    request_pico_usd: int = 0
    quality: float | None = None

    def price(self, row: HourlyTraffic) -> int:
        """The hour's exact bill, aborted requests included: a provider charges for what it sent."""
        fresh = row.input_tokens - row.cached_input_tokens
        return (
            fresh * self.input_pico_usd_per_token
            + row.cached_input_tokens * self.cached_input_pico_usd_per_token
            + row.output_tokens * self.output_pico_usd_per_token
            + row.requests * self.request_pico_usd
        )

    def credit(self, row: HourlyTraffic) -> int:
        """What a GPU serving the hour is credited with: the bill without aborted requests, each taken as average."""
        bill = self.price(row)
        if not row.aborted_requests:
            return bill if row.requests else 0
        return round(bill * Fraction(row.requests - row.aborted_requests, row.requests)) if row.requests else 0


@dataclass(frozen=True, slots=True)
class Paid:
    """What running GPUs cost in a period by the books: each hour at its own price, and its idle part."""

    hours: int
    rent_pico_usd: int
    idle_pico_usd: int

    def at(self, rent_pico_usd: int) -> "Paid":
        """The same use at another rent."""
        idle = self.idle_pico_usd * rent_pico_usd // self.rent_pico_usd if self.rent_pico_usd else 0
        return Paid(self.hours, rent_pico_usd, idle)


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """GPUs that are rented or owned. Hourly prices are per GPU, so a replica's hour is that times `gpus_per_replica`.

    `variable_pico_usd_per_gpu_second` is what a busy second costs beyond the rent (electricity under load): the
    marginal cost of a request. `is_running`: the deployment already pays for these GPUs, so utilisation is what the
    ledger measured, even if zero, not what the model expects; `paid` is what the period cost (None: all its hours at
    today's price).
    `hours_per_month` is the month of every monthly figure.
    """

    name: str
    gpu_hour_price_pico_usd: int
    gpus_per_replica: int = 1
    replicas: int = 1
    min_replicas: int = 0
    fixed_month_pico_usd: int = 0
    hours_per_month: float = HOURS_30_DAYS
    start_up_pico_usd: int = 0
    variable_pico_usd_per_gpu_second: int = 0
    is_running: bool = False
    paid: Paid | None = None
    quality: float | None = None

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.gpus_per_replica < 1 or self.min_replicas < 0 or self.hours_per_month <= 0:
            raise EconomicsError(f"plan {self.name!r}: replicas, GPUs per replica and hours per month must be positive")

    @property
    def replica_hour_pico_usd(self) -> int:
        return self.gpu_hour_price_pico_usd * self.gpus_per_replica

    def hours_in(self, period: Period) -> int:
        """The hours of the period that are paid for."""
        return period.hours if self.paid is None else self.paid.hours

    def rent_pico_usd(self, period: Period) -> int:
        if self.paid is not None:
            return self.paid.rent_pico_usd
        return self.replica_hour_pico_usd * self.replicas * period.hours
