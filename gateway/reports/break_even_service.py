"""The break-even report and its curves for this deployment's ledger, with what-ifs. Computed off the event loop."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from gateway.economics.break_even import demand_of, report_of, unit_of
from gateway.economics.cost_curve import cost_curve
from gateway.economics.demand import Demand
from gateway.economics.errors import EconomicsError
from gateway.economics.payback import payback
from gateway.economics.report import BreakEvenReport
from gateway.economics.sensitivity import Case, build_case
from gateway.economics.traffic import GpuPlan, HostedAlternative, HourlyTraffic, Paid, Period
from gateway.errors import InvalidRequest
from gateway.money import PICO_PER_USD, format_usd
from gateway.reports.books import Books
from gateway.reports.plans import OwnGpus, hosted_alternative, hosted_candidates, most_used, pick_alternative
from gateway.reports.views import BreakEvenQuery, BreakEvenView, CurvePoint, PayBack, PeriodQuery, Utilisation
from gateway.routing.snapshot import Snapshot
from gateway.sums import ReportStore

SEED = 20261101
"""Fixed, so that the same question has the same answer."""
CURVE_POINTS = 33
BEYOND_HERE = 3.0


@dataclass(frozen=True, slots=True)
class BreakEvenOf:
    """What is compared. Of `gpus`, never empty, the first unless a question names another."""

    snapshot: Callable[[], Snapshot]
    gpus: Callable[[], Sequence[OwnGpus]]


@dataclass(frozen=True, slots=True)
class _Compared:
    """A plan and a hosted model, with what both would serve. `hosted_names`: all that could be compared with."""

    own: OwnGpus
    hosted_name: str
    hosted: HostedAlternative
    hosted_names: list[str]
    demand: Demand
    case: Case


class _Traffic(NamedTuple):
    """What was asked in a period, and what these GPUs cost in it."""

    own: OwnGpus
    rows: Sequence[HourlyTraffic]
    period: Period
    paid: Paid


class BreakEvenService:
    """Answers `/reports/break-even` and `/reports/utilisation`."""

    def __init__(self, store: ReportStore, books: Books, deployment: BreakEvenOf) -> None:
        self._store = store
        self._books = books
        self._of = deployment

    async def break_even(self, query: BreakEvenQuery) -> BreakEvenView:
        """Raises InvalidRequest if there is too little traffic."""
        return await asyncio.to_thread(self._answer, query, await self._traffic(query))

    async def utilisation(self, query: PeriodQuery) -> Utilisation:
        """Takes the break-even line from the break-even report, so that the two never disagree."""
        found = await self._books.utilisation(query)
        if len(found.backends) != 1:
            return found
        asked = BreakEvenQuery(since=query.since, until=query.until, backend=found.backends[0])
        try:
            compared = await asyncio.to_thread(self._compare, asked, await self._traffic(asked))
        except InvalidRequest:  # too little traffic for a break-even
            return found
        pays_from = unit_of(compared.demand, compared.case).break_even_utilisation
        busy = None if pays_from is None else pays_from * compared.demand.gpu_seconds_per_capacity_second
        return found.model_copy(update={"break_even_utilisation": pays_from, "break_even_busy_share": busy})

    async def _traffic(self, query: BreakEvenQuery) -> _Traffic:
        own = self._own(query.backend)
        known = await self._books.known_hours(query, of="break-even")
        if known.since_us >= known.until_us:
            raise InvalidRequest("There is no traffic in this time; choose a longer one.")
        period = Period(known.since_us, known.until_us)
        rows = await self._store.hourly_traffic(period.start_us, period.end_us)
        return _Traffic(own, rows, period, await self._books.gpus.paid_for(own.backend, known))

    def _own(self, backend: str | None) -> OwnGpus:
        own = {one.backend: one for one in self._of.gpus()}
        if backend is None:
            return next(iter(own.values()))
        if backend not in own:
            raise InvalidRequest(
                f"{backend!r} is no backend of your own with a gpu_hour_usd; there are: {', '.join(own)}.",
                param="backend",
            )
        return own[backend]

    def _compare(self, query: BreakEvenQuery, traffic: _Traffic) -> _Compared:
        own = replace(traffic.own, plan=_plan(query, traffic.own.plan, traffic.paid))
        snapshot, period = self._of.snapshot(), traffic.period
        rows = _own_time(traffic.rows, snapshot, own.backend)
        candidate = pick_alternative(snapshot, query.hosted_model, most_used(rows))
        hosted = hosted_alternative(candidate, factor=Fraction(str(query.hosted_price_factor)))
        try:
            demand = demand_of(rows, own.plan, hosted, engine=own.engine, period=period, volume=query.volume_factor)
        except EconomicsError as error:
            raise InvalidRequest(f"{error}.") from error
        names = [one.name for one in hosted_candidates(snapshot)]
        return _Compared(own, candidate.name, hosted, names, demand, build_case(demand, own.plan, own.engine))

    def _answer(self, query: BreakEvenQuery, traffic: _Traffic) -> BreakEvenView:
        its, period = self._compare(query, traffic), traffic.period
        plan, demand, generator = its.own.plan, its.demand, np.random.default_rng(SEED)
        report = report_of(demand, plan, its.hosted, period, engine=its.own.engine, generator=generator)
        crossing = report.volume.hybrid.requests_per_day if report.volume.hybrid else 0.0
        widest = max(BEYOND_HERE, min(1000.0, 1.5 * crossing / report.observed.requests_per_day))
        scales = [widest * (step + 0.02) / CURVE_POINTS for step in range(CURVE_POINTS + 1)]
        curve = cost_curve(demand, its.case, period, scales=scales, generator=np.random.default_rng(SEED))
        return BreakEvenView(
            report=report,
            payback=_payback(query, report, plan),
            curve=[CurvePoint(**asdict(point)) for point in curve],
            hosted_models=its.hosted_names,
            backends=[one.backend for one in self._of.gpus()],
            inputs={
                "backend": its.own.backend,
                "gpu_hour_usd": format_usd(plan.gpu_hour_price_pico_usd, places=4),
                "replicas": str(plan.replicas),
                "hosted_model": its.hosted_name,
                "hosted_price_factor": query.hosted_price_factor,
                "volume_factor": query.volume_factor,
                "fixed_usd_per_month": format_usd(plan.fixed_month_pico_usd, places=2),
            },
        )


def _plan(query: BreakEvenQuery, plan: GpuPlan, paid: Paid) -> GpuPlan:
    """The GPUs with the question's changes; other than today's count as not running."""
    if query.gpu_hour_usd is not None:
        price = round(query.gpu_hour_usd * PICO_PER_USD)
        plan = replace(plan, gpu_hour_price_pico_usd=price, name=f"your own engine at ${query.gpu_hour_usd:g} an hour")
        paid = paid.at(plan.replica_hour_pico_usd * plan.replicas * paid.hours)
    if query.fixed_usd_per_month is not None:
        plan = replace(plan, fixed_month_pico_usd=round(query.fixed_usd_per_month * PICO_PER_USD))
    is_todays = query.replicas in (None, plan.replicas) and query.volume_factor == 1.0
    if not (plan.is_running and is_todays and paid.hours):
        return replace(plan, replicas=query.replicas or plan.replicas, is_running=False)
    return replace(plan, paid=paid)


def _own_time(rows: Sequence[HourlyTraffic], snapshot: Snapshot, backend: str) -> list[HourlyTraffic]:
    """Drops the GPU time of the deployment's other GPUs, which these did not serve; keeps it as traffic."""
    elsewhere = {one.name for one in snapshot.candidates.values() if one.is_local and one.backend != backend}
    return [replace(row, gpu_seconds=0.0) if row.model in elsewhere else row for row in rows]


def _payback(query: BreakEvenQuery, report: BreakEvenReport, plan: GpuPlan) -> PayBack | None:
    """Bought GPUs pay no rent: running them costs the fixed part only, and they save the hosted calls they serve."""
    if query.purchase_usd is None:
        return None
    fixed = plan.fixed_month_pico_usd / PICO_PER_USD
    rent = plan.replicas * plan.replica_hour_pico_usd / PICO_PER_USD * plan.hours_per_month
    found = payback(
        purchase_usd=query.purchase_usd,
        month_cost_usd=fixed,
        replaced_month_usd=float(report.month.plan_saving_usd) + rent + fixed,
        yearly_price_factor=query.yearly_price_factor,
        yearly_volume_factor=query.yearly_volume_factor,
        room=1 / offered if (offered := _offered_share(report, plan)) else 1.0,
    )
    return PayBack(
        purchase_usd=query.purchase_usd,
        months=found.month,
        best_recovered_usd=found.best_recovered_usd,
        best_month=found.best_month,
    )


def _offered_share(report: BreakEvenReport, plan: GpuPlan) -> float:
    """The whole load as a share of what the GPUs could serve if it arrived evenly."""
    busy_seconds = report.observed.requests_per_day * report.unit.gpu_seconds_per_request
    return busy_seconds / (86_400 * plan.replicas)
