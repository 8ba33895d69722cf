"""Sends telemetry to a collector over OTLP. The only file that uses OpenTelemetry's SDK; imported only when chosen."""

import asyncio
from dataclasses import dataclass

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from gateway import __version__
from gateway.request.run import Observer
from gateway.telemetry.spans import Telemetry

FLUSH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Exporting:
    """`observer` wraps the one it was made with; `aclose` ends its threads."""

    observer: Telemetry
    traces: TracerProvider
    metrics: MeterProvider

    async def aclose(self) -> None:
        """Sends the rest in separate threads, so that a collector that is down does not delay the stop for long."""
        await asyncio.to_thread(self.traces.force_flush, round(FLUSH_SECONDS * 1000))
        await asyncio.to_thread(self.metrics.shutdown, FLUSH_SECONDS * 1000)
        await asyncio.to_thread(self.traces.shutdown)


def export_to(endpoint: str, next_observer: Observer) -> Exporting:
    """`endpoint` is the collector's address for OTLP over HTTP, as in http://collector:4318."""
    base = endpoint.rstrip("/")
    resource = Resource.create({"service.name": "breakeven", "service.version": __version__})
    traces = TracerProvider(resource=resource)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{base}/v1/metrics"))
    metrics = MeterProvider([reader], resource=resource)
    return Exporting(Telemetry(next_observer, traces, metrics), traces, metrics)
