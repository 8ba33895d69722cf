"""When does owning GPUs pay? Answered from an hourly ledger, a GPU plan and a hosted price list.

Dollars are floats inside the model and leave it as decimal text, rounded to a pico-dollar; sums of ledger rows stay
exact integers throughout. A month is the period scaled to the plan's hours per month, which the report states as an
assumption.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from gateway.counted import counted
from gateway.economics.bootstrap import resample_clusters, spread
from gateway.economics.break_even_volume import find_volume
from gateway.economics.demand import PICO, Demand, build_demand, count_hours
from gateway.economics.dollars import plain_usd, to_usd
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import Engine, break_even_utilisation, value_usd_per_hour
from gateway.economics.overflow import overflow_value_usd_by_fleet, served_value_usd_by_bin
from gateway.economics.report import (
    BreakEvenReport,
    Confidence,
    Month,
    Observed,
    Owned,
    StaircaseRow,
    Swing,
    UnitEconomics,
)
from gateway.economics.sensitivity import Case, build_case, swing
from gateway.economics.staircase import best_replicas, replicas_for_peak, scale_hourly
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic, Period
from gateway.economics.verdict import list_caveats, write_verdict
from gateway.money import usd

LEAST_DAYS_TO_RESAMPLE = 2
RESAMPLES = 2000
ESTIMATE_ERROR = 0.25
"""Assumed standard error of token counts that the provider did not report; widens the interval by their share."""


def demand_of(
    rows: Sequence[HourlyTraffic],
    plan: GpuPlan,
    hosted: HostedAlternative,
    *,
    engine: Engine | None,
    period: Period,
    volume: float,
) -> Demand:
    """What a report is made of. `rows` are the traffic that the plan's GPUs could serve, whoever served it; `volume`
    multiplies it.

    With an `engine` (its curve at N*), requests are priced by their tokens and overflow is modelled; without one, the
    ledger's GPU-seconds per request are used and the fluid bound is reported. Raises EconomicsError on an empty period,
    or if nothing tells how many GPU-seconds a request takes.
    """
    if not any(row.requests for row in rows if period.holds(row)):
        rent = usd(plan.rent_pico_usd(period))
        hours = counted(period.hours, "hour")
        raise EconomicsError(f"idle: no request in {hours}, and {plan.name} cost ${rent:.2f} of rent meanwhile")
    return build_demand(count_hours(rows, period, hosted), plan=plan, engine=engine).scaled(volume)


def report_of(
    demand: Demand,
    plan: GpuPlan,
    hosted: HostedAlternative,
    period: Period,
    *,
    engine: Engine | None,
    generator: np.random.Generator,
) -> BreakEvenReport:
    """The whole report. `demand` was computed with the same plan, model, engine and period."""
    case = build_case(demand, plan, engine)
    staircase = _staircase(case)
    report = BreakEvenReport(
        plan=plan.name,
        plan_quality=plan.quality,
        hosted=hosted.name,
        hosted_quality=hosted.quality,
        discipline="overflow" if engine else "fluid",
        observed=_observed(demand, period),
        unit=unit_of(demand, case),
        owned=_owned(demand, plan, period, case),
        month=_month(case, plan, staircase, demand.variable_usd),
        staircase=staircase,
        volume=find_volume(case, plan, demand),
        confidence=_confidence(case, demand, generator),
        tornado=tuple(Swing(name, to_usd(low), to_usd(high)) for name, low, high in swing(case, demand)),
        verdict="",
        caveats=list_caveats(demand, plan, hosted, period, engine),
    )
    return replace(report, verdict=write_verdict(report))


def _observed(demand: Demand, period: Period) -> Observed:
    shape = demand.shape
    return Observed(
        start=_iso(period.start_us),
        end=_iso(period.end_us),
        hours=period.hours,
        days=int(demand.day_of_hour.max()) + 1,
        requests=round(demand.requests),
        requests_per_day=demand.requests / period.hours * 24,
        input_tokens_per_request=shape.input_tokens,
        output_tokens_per_request=shape.output_tokens,
        cached_input_share=shape.cached_share,
        ledger_cost_usd=plain_usd(demand.ledger_pico_usd),
        list_cost_usd=plain_usd(demand.list_pico_usd),
        unpriced_requests=demand.unpriced_requests,
        estimated_share=demand.estimated_share,
        aborted_requests=demand.aborted_requests,
    )


def unit_of(demand: Demand, case: Case) -> UnitEconomics:
    seconds, value = demand.gpu_seconds_per_request, case.load.value_usd / demand.requests
    value_per_hour = value_usd_per_hour(value, seconds)
    return UnitEconomics(
        gpu_seconds_per_request=seconds,
        requests_per_second_per_replica=1 / seconds,
        replica_hour_usd=to_usd(case.usd_per_replica_hour),
        hosted_usd_per_request=to_usd(demand.hosted_pico_usd / PICO / demand.requests),
        value_usd_per_hour=to_usd(value_per_hour),
        break_even_utilisation=break_even_utilisation(case.usd_per_replica_hour, value_per_hour),
        peak_to_mean=case.load.peak_to_mean or 1.0,
    )


def _owned(demand: Demand, plan: GpuPlan, period: Period, case: Case) -> Owned:
    """A running fleet is judged by what the ledger measured, any other by what the model expects."""
    paid_seconds = plan.replicas * plan.hours_in(period) * 3600.0
    expected_seconds = float(np.minimum(demand.load.busy_replicas, plan.replicas).sum()) * 3600
    is_measured = plan.is_running
    busy = demand.measured_gpu_seconds if is_measured else expected_seconds
    taken = demand.measured_capacity_seconds if is_measured else expected_seconds
    served = demand.measured_requests if is_measured else expected_seconds / demand.gpu_seconds_per_request
    seconds = busy / served if served else demand.gpu_seconds_per_request
    rent = plan.rent_pico_usd(period)
    idle = _idle_pico_usd(rent, busy, paid_seconds) if plan.paid is None else plan.paid.idle_pico_usd
    return Owned(
        replicas=plan.replicas,
        is_measured=is_measured,
        paid_hours=plan.hours_in(period),
        utilisation=min(1.0, taken / paid_seconds),
        busy_share=min(1.0, busy / paid_seconds),
        rent_usd=plain_usd(rent),
        idle_usd=plain_usd(idle),
        allocated_usd_per_request=to_usd(rent / PICO / served) if served else None,
        busy_usd_per_request=to_usd(case.usd_per_replica_hour / 3600 * seconds),
        marginal_usd_per_request=to_usd(plan.variable_pico_usd_per_gpu_second / PICO * seconds),
    )


def _idle_pico_usd(rent_pico_usd: int, busy_seconds: float, paid_seconds: float) -> int:
    """The exact rent of unused time. Zero if more was used than paid for, which clocks at an hour's edge can cause."""
    busy_us, paid_us = round(busy_seconds * 1e6), round(paid_seconds * 1e6)
    return rent_pico_usd - rent_pico_usd * busy_us // max(paid_us, busy_us)


def _staircase(case: Case) -> tuple[StaircaseRow, ...]:
    """Two steps beyond the best fleet, and at least as far as the plan's: later steps only get worse."""
    load, factor = case.load, case.month_factor
    best = best_replicas(load, case.usd_per_replica_hour)
    rent = case.usd_per_replica_hour * case.hours_per_month
    hosted = case.hosted_usd_per_month
    most, slots = max(best + 2, case.replicas), case.slots_per_replica
    served = None if slots is None else overflow_value_usd_by_fleet(load, most, slots)
    rows: list[StaircaseRow] = []
    for count in range(1, most + 1):
        value = load.layer_value_usd(count) * factor
        fluid = replace(case, replicas=count, slots_per_replica=None)
        overflow = None if served is None else fluid.saving_usd(served[count - 1])
        rows.append(
            StaircaseRow(
                replicas=count,
                value_usd=to_usd(value),
                rent_usd=to_usd(rent),
                pays=value >= rent,
                fluid_total_usd=to_usd(hosted - fluid.saving_usd_per_month),
                overflow_total_usd=None if overflow is None else to_usd(hosted - overflow),
            )
        )
    return tuple(rows)


def _month(case: Case, plan: GpuPlan, staircase: Sequence[StaircaseRow], variable_usd: float) -> Month:
    """`best` is the cheapest option: hosting everything, or a fleet of the staircase that meets the plan's minimum."""
    load, factor = case.load, case.month_factor
    hosted, saving = case.hosted_usd_per_month, case.saving_usd_per_month
    totals = {row.replicas: row.overflow_total_usd or row.fluid_total_usd for row in staircase}
    allowed = {count: total for count, total in totals.items() if count >= plan.min_replicas}
    if plan.min_replicas == 0:
        allowed[0] = to_usd(hosted)
    best = min(allowed, key=lambda count: (allowed[count], count)) if allowed else plan.min_replicas
    scaled = scale_hourly(
        load, case.usd_per_replica_hour, start_up_usd=plan.start_up_pico_usd / PICO, minimum=plan.min_replicas
    )
    peak = replicas_for_peak(load)
    keeps_gpus = case.fixed_usd_per_month if any(scaled.replicas) else 0.0
    best_usd = allowed.get(best, to_usd(hosted - replace(case, replicas=best).saving_usd_per_month))
    return Month(
        hours=case.hours_per_month,
        all_hosted_usd=to_usd(hosted),
        plan_usd=to_usd(hosted - saving),
        plan_saving_usd=to_usd(saving),
        best_replicas=best,
        best_usd=best_usd,
        hourly_scaling_usd=to_usd(hosted - (load.value_usd - scaled.total_usd) * factor + keeps_gpus),
        self_hosted_replicas=peak,
        self_hosted_usd=to_usd(
            peak * case.usd_per_replica_hour * case.hours_per_month + variable_usd * factor + case.fixed_usd_per_month
        ),
    )


def _confidence(case: Case, demand: Demand, generator: np.random.Generator) -> Confidence | None:
    days = int(demand.day_of_hour.max()) + 1
    if days < LEAST_DAYS_TO_RESAMPLE:
        return None
    served = served_value_usd_by_bin(case.load, case.replicas, case.slots_per_replica)
    busy = np.minimum(case.load.busy_replicas, case.replicas)
    columns = np.stack([served, busy, case.load.hours], axis=1)
    drawn = resample_clusters(columns, demand.day_of_hour, generator, resamples=RESAMPLES)
    error = 1 + demand.estimated_share * ESTIMATE_ERROR * generator.standard_normal(RESAMPLES)
    cost = case.replicas * case.usd_per_replica_hour * case.hours_per_month + case.fixed_usd_per_month
    savings = drawn[:, 0] / drawn[:, 2] * error * case.hours_per_month - cost
    saving, used = spread(savings, days), spread(drawn[:, 1] / drawn[:, 2] / case.replicas, days)
    return Confidence(
        days=days,
        resamples=RESAMPLES,
        saving_low_usd=to_usd(saving.low),
        saving_middle_usd=to_usd(saving.middle),
        saving_high_usd=to_usd(saving.high),
        utilisation_low=used.low,
        utilisation_high=used.high,
        probability_owning_is_cheaper=float(np.mean(savings > 0)),
    )


def _iso(moment_us: int) -> str:
    return datetime.fromtimestamp(moment_us // 1_000_000, UTC).isoformat()
