"""Composition root: who observes the request path, metrics alone or with telemetry around them."""

from dataclasses import dataclass
from typing import Protocol

from gateway.request.run import Observer


class Watching(Protocol):
    """An observer, and how to shut it down."""

    @property
    def observer(self) -> Observer: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class MetricsOnly:
    """Telemetry is off."""

    observer: Observer

    async def aclose(self) -> None:
        return None


def open_watching(otlp_endpoint: str | None, metrics: Observer) -> Watching:
    if otlp_endpoint is None:
        return MetricsOnly(metrics)
    from gateway.telemetry.export import export_to  # of an extra: see require_clients

    return export_to(otlp_endpoint, metrics)
