"""Turns exact hourly rows into the load that the model works with: GPU-seconds and hosted dollars of every hour."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import Engine, RequestShape
from gateway.economics.load_duration import FloatArray, Load
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic, Period
from gateway.instants import HOUR_US

PICO = 1e12


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """All requests of a period that the plan's GPUs could serve, whoever served them.

    Counts are whole numbers, except after `scaled`.
    """

    load: Load
    day_of_hour: NDArray[np.int64]
    """Which UTC day each hour belongs to, counted from 0."""
    requests: float
    input_tokens: float
    cached_input_tokens: float
    output_tokens: float
    hosted_pico_usd: int
    """The bill with everything hosted, aborted requests included; the load's values leave those out."""
    variable_usd: float
    """What serving everything on GPUs would cost beyond their rent."""
    ledger_pico_usd: int
    list_pico_usd: int
    unpriced_requests: int
    estimated_share: float
    aborted_requests: int
    measured_gpu_seconds: float
    """GPU-seconds that the ledger measured for the rows that ran on GPUs, at the batch sizes that occurred."""
    measured_requests: float
    measured_capacity_seconds: float
    """The capacity those requests took: the model's GPU-seconds for them, in full batches."""
    prefill_share: float | None
    """The prompt's share of a request's GPU-seconds; None when they come from the ledger."""
    output_value_share: float
    """The output's share of the hosted bill."""

    @property
    def shape(self) -> RequestShape:
        return RequestShape(
            self.input_tokens / self.requests,
            self.output_tokens / self.requests,
            self.cached_input_tokens / self.input_tokens if self.input_tokens else 0.0,
        )

    @property
    def gpu_seconds_per_request(self) -> float:
        load = self.load
        return float((load.hours * 3600 * load.busy_replicas).sum()) / self.requests

    @property
    def gpu_seconds_per_capacity_second(self) -> float:
        """Above 1 if batches were smaller than the GPU can take; 1 if nothing ran on it."""
        return self.measured_gpu_seconds / self.measured_capacity_seconds if self.measured_capacity_seconds else 1.0

    def scaled(self, factor: float) -> "Demand":
        """The same hours and mix with `factor` times the requests; an hour may then have a fraction of one."""
        if factor == 1.0:
            return self
        floats = (*_TOKEN_FIELDS, "requests", "variable_usd", *_MEASURED_FIELDS)
        sums = ("hosted_pico_usd", "ledger_pico_usd", "list_pico_usd", "unpriced_requests", "aborted_requests")
        return replace(
            self,
            load=self.load.scaled(factor),
            **{name: getattr(self, name) * factor for name in floats},
            **{name: round(getattr(self, name) * factor) for name in sums},
        )


@dataclass(frozen=True, slots=True, eq=False)
class Hours:
    """What a period's rows add up to, whatever GPUs would serve them: the part of a demand that does not depend on the
    plan, since a what-if tries dozens. `on_gpus_*` are the totals of the rows that ran on GPUs."""

    period: Period
    hosted: HostedAlternative
    requests: FloatArray
    fresh_tokens: FloatArray
    output_tokens: FloatArray
    credited_usd: FloatArray
    input_tokens: int
    cached_input_tokens: int
    hosted_pico_usd: int
    ledger_pico_usd: int
    list_pico_usd: int
    unpriced_requests: int
    estimated_requests: int
    aborted_requests: int
    on_gpus_requests: int
    on_gpus_fresh_tokens: int
    on_gpus_output_tokens: int
    on_gpus_seconds: float


def count_hours(rows: Sequence[HourlyTraffic], period: Period, hosted: HostedAlternative) -> Hours:
    """Hours without rows are hours without traffic."""
    inside = [row for row in rows if period.holds(row)]
    local = [row for row in inside if row.gpu_seconds > 0]
    requests, fresh, output, credited = np.zeros((4, period.hours))
    for row in inside:
        hour = (row.hour_start_us - period.start_us) // HOUR_US
        requests[hour] += row.requests
        fresh[hour] += row.input_tokens - row.cached_input_tokens
        output[hour] += row.output_tokens
        credited[hour] += hosted.credit(row) / PICO
    return Hours(
        period=period,
        hosted=hosted,
        requests=requests,
        fresh_tokens=fresh,
        output_tokens=output,
        credited_usd=credited,
        input_tokens=sum(row.input_tokens for row in inside),
        cached_input_tokens=sum(row.cached_input_tokens for row in inside),
        hosted_pico_usd=sum(hosted.price(row) for row in inside),
        ledger_pico_usd=sum(row.cost_pico_usd for row in inside),
        list_pico_usd=sum(row.list_cost_pico_usd for row in inside),
        unpriced_requests=sum(row.unpriced_requests for row in inside),
        estimated_requests=sum(row.estimated_requests for row in inside),
        aborted_requests=sum(row.aborted_requests for row in inside),
        on_gpus_requests=sum(row.requests for row in local),
        on_gpus_fresh_tokens=sum(row.input_tokens - row.cached_input_tokens for row in local),
        on_gpus_output_tokens=sum(row.output_tokens for row in local),
        on_gpus_seconds=sum(row.gpu_seconds for row in local),
    )


def build_demand(hours: Hours, *, plan: GpuPlan, engine: Engine | None) -> Demand:
    """GPU-seconds come from the engine's curve and each hour's tokens or, without a curve, from the ledger's measured
    mean per request of the rows that ran on GPUs. Raises EconomicsError without requests, or with neither source.
    """
    total, output_tokens = int(hours.requests.sum()), int(hours.output_tokens.sum())
    if engine is None:
        mean_seconds = _measured_seconds_per_request(hours)
        gpu_seconds, capacity = hours.requests * mean_seconds, hours.on_gpus_requests * mean_seconds
    else:
        prefill, each = engine.prefill_tokens_per_second, engine.decode_gpu_seconds_per_token
        gpu_seconds = hours.fresh_tokens / prefill + hours.output_tokens * each
        capacity = hours.on_gpus_fresh_tokens / prefill + hours.on_gpus_output_tokens * each
    if total == 0:
        raise EconomicsError("no request in the period: the GPUs were idle, and there is nothing to compare")
    bill, busy_seconds = hours.hosted_pico_usd, float(gpu_seconds.sum())
    output_pico = output_tokens * hours.hosted.output_pico_usd_per_token
    return Demand(
        load=_load(hours.requests, gpu_seconds, hours.credited_usd, plan),
        day_of_hour=_days(hours.period),
        requests=total,
        input_tokens=hours.input_tokens,
        cached_input_tokens=hours.cached_input_tokens,
        output_tokens=output_tokens,
        hosted_pico_usd=bill,
        variable_usd=plan.variable_pico_usd_per_gpu_second / PICO * busy_seconds,
        ledger_pico_usd=hours.ledger_pico_usd,
        list_pico_usd=hours.list_pico_usd,
        unpriced_requests=hours.unpriced_requests,
        estimated_share=hours.estimated_requests / total,
        aborted_requests=hours.aborted_requests,
        measured_gpu_seconds=hours.on_gpus_seconds,
        measured_requests=hours.on_gpus_requests,
        measured_capacity_seconds=capacity,
        prefill_share=_prefill_share(hours, engine, busy_seconds),
        output_value_share=min(1.0, output_pico / bill) if bill else 0.0,
    )


_MEASURED_FIELDS = ("measured_gpu_seconds", "measured_requests", "measured_capacity_seconds")
_TOKEN_FIELDS = ("input_tokens", "cached_input_tokens", "output_tokens")


def _measured_seconds_per_request(hours: Hours) -> float:
    if not hours.on_gpus_seconds:
        raise EconomicsError(
            "no request of this period ran on the engine in question, and it has no measured throughput curve: "
            "`breakeven bench engine` measures the bundled one, and `breakeven what-if` is about other GPUs"
        )
    return hours.on_gpus_seconds / hours.on_gpus_requests


def _prefill_share(hours: Hours, engine: Engine | None, busy_seconds: float) -> float | None:
    if engine is None or busy_seconds <= 0:
        return None
    return float(hours.fresh_tokens.sum()) / engine.prefill_tokens_per_second / busy_seconds


def _load(requests: FloatArray, gpu_seconds: FloatArray, credited_usd: FloatArray, plan: GpuPlan) -> Load:
    """Hours without requests get the mean request to avoid dividing by zero; their rate is zero anyway."""
    seen = requests > 0
    mean_seconds = float(gpu_seconds.sum() / requests.sum())
    per_request = np.divide(gpu_seconds, requests, out=np.full_like(requests, mean_seconds), where=seen)
    credit = np.divide(credited_usd, requests, out=np.zeros_like(requests), where=seen)
    value = credit - plan.variable_pico_usd_per_gpu_second / PICO * per_request
    return Load(np.ones_like(requests), requests / 3600.0, per_request, value)


def _days(period: Period) -> NDArray[np.int64]:
    """The UTC day of each hour, counted from the first."""
    hours = np.arange(period.start_us // HOUR_US, period.start_us // HOUR_US + period.hours, dtype=np.int64)
    return hours // 24 - hours[0] // 24
