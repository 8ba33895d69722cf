"""`/admin/v1/backends` and `/engine`: health, load and speed of what answers."""
# pyright: reportUnusedFunction=false

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from backends.protocol import BackendHealth
from gateway.api.admin.guard import needs
from gateway.config.engine_curve import MeasuredEngine
from gateway.money import format_usd
from gateway.pipeline import Pipeline


class Breaker(BaseModel):
    upstream_model: str
    key: str = Field("", description="The label of the key, if the backend has several.")
    state: str
    failures: int
    cool_down_seconds: float


class BackendRow(BaseModel):
    """`is_healthy` is null for hosted backends, which are not polled: see their breakers. `is_starting`: not up yet."""

    name: str
    is_simulated: bool
    is_healthy: bool | None
    is_starting: bool
    detail: str
    in_flight: int
    free_slots: int | None
    running_requests: int | None
    waiting_requests: int | None
    queue_seconds: float | None
    breakers: list[Breaker]


class BackendRows(BaseModel):
    retry_budget_saved: float
    retry_budget_burst: float
    backends: list[BackendRow]


class ThroughputPoint(BaseModel):
    concurrency: int
    decode_tokens_per_second: float


class EngineView(BaseModel):
    """Your own engine: its throughput and current load. `is_assumed`: the throughput was not measured here yet."""

    is_configured: bool
    model: str | None
    is_healthy: bool | None
    is_starting: bool
    detail: str
    free_slots: int | None
    running_requests: int | None
    waiting_requests: int | None
    queue_seconds: float | None
    is_assumed: bool
    prefill_tokens_per_second: float | None
    working_concurrency: int | None
    working_tokens_per_second: float | None
    ceiling_tokens_per_second: float | None
    gpu_hour_usd: str | None
    points: list[ThroughputPoint]


@dataclass(frozen=True, slots=True)
class OwnEngine:
    """The engine that the composition root started."""

    backend: str
    measured: MeasuredEngine
    gpu_hour_pico_usd: int


def build_backends_router(pipeline: Pipeline, engine: Callable[[], OwnEngine | None]) -> APIRouter:
    """Answers from this process's memory."""
    router = APIRouter(tags=["admin: operations"])

    @router.get("/backends", openapi_extra=needs("operations.read"))
    async def backends() -> BackendRows:
        """Health, requests in flight and circuit breakers of this process."""
        budget = pipeline.upstreams.retry_budget
        return BackendRows(
            retry_budget_saved=budget.saved,
            retry_budget_burst=budget.burst,
            backends=[_backend(pipeline, name) for name in sorted(pipeline.backends)],
        )

    @router.get("/engine", openapi_extra=needs("operations.read"))
    async def own_engine() -> EngineView:
        """Slots, queue and throughput curve of your own engine."""
        return _engine(pipeline, engine())

    return router


def _backend(pipeline: Pipeline, name: str) -> BackendRow:
    upstreams = pipeline.upstreams
    return BackendRow(
        name=name,
        is_simulated=pipeline.backends[name].is_simulated,
        is_starting=name in upstreams.starting,
        in_flight=upstreams.running.get(name, 0),
        **_health_fields(upstreams.health.get(name)),
        breakers=[
            Breaker(
                upstream_model=model,
                key=key,
                state=breaker.state,
                failures=breaker.failures,
                cool_down_seconds=breaker.cool_down_seconds,
            )
            for (backend, model), by_key in sorted(upstreams.breakers.items())
            for key, breaker in sorted(by_key.items())
            if backend == name
        ],
    )


def _health_fields(health: BackendHealth | None) -> dict[str, Any]:
    """The health fields of `BackendRow` and `EngineView`; all unknown if the backend was never checked."""
    return asdict(health) if health else {**dict.fromkeys(BackendHealth.__dataclass_fields__), "detail": ""}


def _engine(pipeline: Pipeline, own: OwnEngine | None) -> EngineView:
    curve = own.measured.engine.curve if own else None
    served = (c.name for c in pipeline.snapshot.candidates.values() if own and c.backend == own.backend)
    return EngineView(
        is_configured=own is not None,
        model=next(served, None),
        is_starting=own is not None and own.backend in pipeline.upstreams.starting,
        **_health_fields(pipeline.upstreams.health.get(own.backend) if own else None),
        is_assumed=own.measured.is_assumed if own else False,
        prefill_tokens_per_second=own.measured.engine.prefill_tokens_per_second if own else None,
        working_concurrency=own.measured.engine.concurrency if own else None,
        working_tokens_per_second=curve.tokens_per_second(own.measured.engine.concurrency) if own and curve else None,
        ceiling_tokens_per_second=curve.ceiling_tokens_per_second if curve else None,
        gpu_hour_usd=format_usd(own.gpu_hour_pico_usd, places=6) if own else None,
        points=[
            ThroughputPoint(concurrency=point.concurrency, decode_tokens_per_second=point.decode_tokens_per_second)
            for point in (curve.points if curve else ())
        ],
    )
