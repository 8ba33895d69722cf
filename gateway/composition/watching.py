"""Composition root: who observes the request path, metrics alone or with telemetry around them."""

from dataclasses import dataclass
from typing import Protocol

from gateway.errors import StateError
from gateway.extras import install_command
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
    """Raises StateError if telemetry is configured and its packages are not installed."""
    if otlp_endpoint is None:
        return MetricsOnly(metrics)
    try:
        from gateway.telemetry.export import export_to
    except ModuleNotFoundError as error:
        raise StateError(f"telemetry is configured and {error.name} is missing: {install_command('otel')}") from error
    return export_to(otlp_endpoint, metrics)
