"""What if we rented GPUs that we do not have, for a model that we do not serve yet?

A sweep in the table is used as it is. Without one, the engine is estimated from data sheets: a decode step reads the
weights once and every sequence's key-value cache, and each token costs two operations per parameter, both at the share
of the peak that the table assumes. Every result states its basis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from gateway.economics.break_even import report_of
from gateway.economics.demand import Hours, build_demand
from gateway.economics.errors import EconomicsError
from gateway.economics.gpu_cost import Engine
from gateway.economics.gpu_table import Basis, Gpu, GpuPrice, GpuTable, ServedModel
from gateway.economics.report import BreakEvenReport
from gateway.economics.throughput_curve import SweepPoint, ThroughputCurve, best_concurrency, fit_throughput_curve
from gateway.economics.traffic import GpuPlan

LARGEST_ASSUMED_CONCURRENCY = 256
"""The default scheduling limit of engines, however much memory is left."""
SHAPE_MARGIN = 2.0
"""Memory is planned for sequences this many times the mean length, so that long ones fit too."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One option to try. `fixed_month_pico_usd` is its monthly cost besides rent."""

    gpu: str
    model: str
    gpus_per_replica: int = 1
    replicas: int = 1
    quality: float | None = None
    fixed_month_pico_usd: int = 0
    time_per_output_token_seconds: float = 0.06


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The answer for one candidate, with its basis."""

    candidate: Candidate
    price: GpuPrice
    curve_basis: Basis
    curve_source: str
    concurrency: int
    report: BreakEvenReport


def what_if(
    hours: Hours, candidate: Candidate, table: GpuTable, *, day: date, generator: np.random.Generator
) -> WhatIf:
    """Raises EconomicsError for a model that does not fit, a name that the table lacks, a target that cannot be met."""
    engine, basis, source = build_engine(candidate, table, tokens_per_sequence=_tokens_per_sequence(hours))
    price = table.gpu(candidate.gpu).typical_price(day)
    plan = GpuPlan(
        name=f"{candidate.gpus_per_replica} × {candidate.gpu} with {candidate.model}",
        gpu_hour_price_pico_usd=price.pico_usd_per_hour,
        gpus_per_replica=candidate.gpus_per_replica,
        replicas=candidate.replicas,
        fixed_month_pico_usd=candidate.fixed_month_pico_usd,
        quality=candidate.quality,
    )
    demand = build_demand(hours, plan=plan, engine=engine)
    report = report_of(demand, plan, hours.hosted, hours.period, engine=engine, generator=generator)
    return WhatIf(candidate, price, basis, source, engine.concurrency, report)


def rank(answers: Sequence[WhatIf]) -> list[WhatIf]:
    """Largest monthly saving first."""
    return sorted(answers, key=lambda answer: -answer.report.month.plan_saving_usd)


def sequences_that_fit(gpu: Gpu, model: ServedModel, table: GpuTable, *, gpus: int, tokens_per_sequence: float) -> int:
    """Sequences whose key-value cache fits beside the weights. Raises EconomicsError when not even one does."""
    usable = gpu.memory_gb * 1e9 * gpus * table.assumptions.memory
    left = usable - model.weight_bytes
    count = int(left / (model.kv_bytes_per_token * tokens_per_sequence))
    if left <= 0 or count < 1:
        raise EconomicsError(
            f"{model.name} needs {model.weight_bytes / 1e9:.1f} GB of weights and"
            f" {model.kv_bytes_per_token * tokens_per_sequence / 1e9:.2f} GB per sequence;"
            f" {gpus} × {gpu.name} offer {usable / 1e9:.1f} GB: use more GPUs per replica or fewer bytes per parameter"
        )
    return count


def build_engine(candidate: Candidate, table: GpuTable, *, tokens_per_sequence: float) -> tuple[Engine, Basis, str]:
    """The engine at its best concurrency within memory and the target, with the basis and source of its curve."""
    gpu, model = table.gpu(candidate.gpu), table.model(candidate.model)
    gpus = candidate.gpus_per_replica
    fitting = sequences_that_fit(gpu, model, table, gpus=gpus, tokens_per_sequence=tokens_per_sequence)
    known = table.curve(gpu.name, gpus, model.name)
    if known is not None:
        curve, prefill, basis, source = known.fit(), known.prefill_tokens_per_second, known.basis, known.source
    else:
        most = max(3, min(fitting, LARGEST_ASSUMED_CONCURRENCY))
        curve, prefill = _assume(gpu, model, table, gpus, tokens_per_sequence, most)
        basis, source = "assumed", f"data sheets of {gpu.name} under the table's assumptions"
    best = best_concurrency(curve, time_per_output_token_seconds=candidate.time_per_output_token_seconds)
    if best is None:
        raise EconomicsError(
            f"{model.name} on {gpus} × {gpu.name} takes {curve.step_seconds(1) * 1e3:.0f} ms a token even alone;"
            f" the target is {candidate.time_per_output_token_seconds * 1e3:.0f} ms"
        )
    return Engine(curve, min(best, fitting), prefill, is_measured=basis != "assumed"), basis, source


def _assume(
    gpu: Gpu, model: ServedModel, table: GpuTable, gpus: int, tokens_per_sequence: float, most: int
) -> tuple[ThroughputCurve, float]:
    """Step seconds and prefill speed from the data sheet, assuming that a sequence is halfway through on average."""
    assumed = table.assumptions
    bytes_per_second = gpu.memory_gb_per_second * 1e9 * gpus * assumed.memory_bandwidth
    operations_per_second = gpu.dense_bf16_tflops * 1e12 * gpus * assumed.compute
    cache = model.kv_bytes_per_token * tokens_per_sequence / 2 / bytes_per_second
    each = cache + model.operations_per_token / operations_per_second
    concurrencies = sorted({1, (1 + most) // 2, most})
    points = [
        SweepPoint(count, count / (model.weight_bytes_read(count) / bytes_per_second + each * count))
        for count in concurrencies
    ]
    return fit_throughput_curve(points), operations_per_second / model.operations_per_token


def _tokens_per_sequence(hours: Hours) -> float:
    requests, tokens = float(hours.requests.sum()), hours.input_tokens + float(hours.output_tokens.sum())
    return max(1.0, SHAPE_MARGIN * tokens / requests) if requests else 1.0
