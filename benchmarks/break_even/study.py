"""Everything that the report shows, computed once."""

from dataclasses import dataclass

import numpy as np

from benchmarks.break_even.brute_force import simulate_overflow
from benchmarks.break_even.disciplines import fluid_saving_usd, overflow_saving_usd, queue_saving_usd
from benchmarks.break_even.month import DAYS, HOSTED, PLAN, SEED, START, Purchase, build_engine, build_month
from gateway.economics.break_even import demand_of, report_of
from gateway.economics.demand import Demand
from gateway.economics.gpu_cost import Engine
from gateway.economics.payback import Payback, payback
from gateway.economics.report import BreakEvenReport
from gateway.economics.traffic import Period
from gateway.instants import HOUR_US

PROMISED_SECONDS = 1.0
PRICE_DECLINES = {"flat": 1.0, "halving every year": 0.5, "a tenth every year": 0.1}


@dataclass(frozen=True, slots=True)
class Study:
    """`*_saving_usd` are a month's saving of one replica before fixed costs, by discipline."""

    engine: Engine
    demand: Demand
    report: BreakEvenReport
    fluid_saving_usd: float
    overflow_saving_usd: float
    queue_saving_usd: float
    simulated_saving_usd: float
    expected_saving_of_simulated_arrivals_usd: float
    purchase: Purchase
    replaced_usd_per_month: float
    paybacks: dict[str, Payback]


def study_month() -> Study:
    engine, rows = build_engine(), build_month()
    start_us = int(START.timestamp()) * 1_000_000
    period = Period(start_us, start_us + DAYS * 24 * HOUR_US)
    demand = demand_of(rows, PLAN, HOSTED, engine=engine, period=period, volume=1.0)
    report = report_of(demand, PLAN, HOSTED, period, engine=engine, generator=np.random.default_rng(SEED))
    load, usd_per_hour, slots = demand.load, PLAN.replica_hour_pico_usd / 1e12, engine.concurrency
    shape = demand.shape
    residence = engine.residence_seconds(shape)
    simulated = simulate_overflow(
        load, usd_per_hour, slots, 1, residence_seconds=lambda _: residence, generator=np.random.default_rng(SEED)
    )
    cold_prefill = shape.input_tokens / engine.prefill_tokens_per_second
    overflow = overflow_saving_usd(load, usd_per_hour, 1, slots_per_replica=slots)
    rent = usd_per_hour * load.total_hours
    purchase, replaced = Purchase(), overflow + rent
    return Study(
        engine=engine,
        demand=demand,
        report=report,
        fluid_saving_usd=fluid_saving_usd(load, usd_per_hour, 1),
        overflow_saving_usd=overflow,
        queue_saving_usd=queue_saving_usd(
            load, usd_per_hour, 1, slots_per_replica=slots, wait_seconds=PROMISED_SECONDS - cold_prefill
        ),
        simulated_saving_usd=simulated.saving_usd,
        expected_saving_of_simulated_arrivals_usd=simulated.all_hosted_usd / load.value_usd * (overflow + rent) - rent,
        purchase=purchase,
        replaced_usd_per_month=replaced,
        paybacks={
            name: payback(
                purchase_usd=purchase.purchase_usd,
                month_cost_usd=purchase.running_usd_per_month + purchase.fixed_usd_per_month,
                replaced_month_usd=replaced,
                yearly_price_factor=factor,
            )
            for name, factor in PRICE_DECLINES.items()
        },
    )
