"""Traces and GenAI metrics of settled requests, through OpenTelemetry's own in-memory exporters."""

from typing import Any

import pytest
from aiohttp import web
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from backends.scripted import Outcome, Script, follow
from gateway.request.run import Incoming
from gateway.telemetry.export import export_to
from gateway.telemetry.spans import Telemetry
from tests.rig import KEY, RecordingCaller, Rig


class Collected:
    """A rig whose telemetry is kept in memory."""

    def __init__(self, one: Script | None = None) -> None:
        self.rig = Rig(one=one)
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        traces = TracerProvider()
        traces.add_span_processor(SimpleSpanProcessor(self._spans))
        self.rig.pipeline.observer = Telemetry(self.rig.observed, traces, MeterProvider([self._reader]))

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def points(self) -> dict[str, list[HistogramDataPoint]]:
        found = self._reader.get_metrics_data()
        assert found is not None
        metrics = found.resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: list(metric.data.data_points) for metric in metrics}  # pyright: ignore[reportReturnType]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_request_is_a_span_named_as_the_conventions_say() -> None:
    collected = Collected()
    await collected.rig.ask(stream=True)
    child, parent = collected.spans()
    assert (parent.name, parent.kind, child.kind) == ("chat a", SpanKind.SERVER, SpanKind.CLIENT)
    said = attributes(parent)
    assert (said["gen_ai.provider.name"], said["gen_ai.response.model"]) == ("openai", "upstream-a")
    assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (12, 4)
    assert said["gen_ai.response.finish_reasons"] == ("stop",)
    assert said["breakeven.request_id"] == collected.rig.entry.intent.request_id
    assert child.parent is not None
    assert child.parent.span_id == parent.context.span_id  # pyright: ignore[reportOptionalMemberAccess]
    assert "hello" not in parent.to_json() + child.to_json(), "a prompt is nobody's attribute"


@pytest.mark.parametrize(("flags", "spans"), [("01", 2), ("00", 0)])
async def test_it_joins_the_callers_trace_if_that_is_sampled(flags: str, spans: int) -> None:
    collected = Collected()
    trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    body = b'{"model":"auto","messages":[{"role":"user","content":"hello"}]}'
    headers = {"traceparent": f"00-{trace}-{span}-{flags}"}
    asked = Incoming("chat.completions", f"Bearer {KEY}", body, headers=headers)
    await collected.rig.pipeline.answer(asked, RecordingCaller())
    assert collected.rig.one.calls[0].headers == headers
    found = collected.spans()
    assert len(found) == spans
    for one in found:
        assert one.context is not None
        assert one.context.trace_id == int(trace, 16)
    if found:
        assert found[-1].parent is not None
        assert (found[-1].parent.span_id, found[-1].parent.is_remote) == (int(span, 16), True)


async def test_every_attempt_is_a_child_and_a_failed_one_says_so() -> None:
    collected = Collected(one=follow([Outcome(fault="unavailable")]))
    await collected.rig.ask()
    *children, parent = collected.spans()
    assert [child.status.status_code for child in children][-1] is StatusCode.UNSET
    assert attributes(children[0])["error.type"] == "UpstreamUnavailable"
    assert parent.status.status_code is StatusCode.UNSET, "the request was answered"
    assert collected.rig.observed.entries, "the observer behind it hears everything too"
    assert collected.rig.observed.failed


async def test_the_four_metrics() -> None:
    collected = Collected()
    await collected.rig.ask(stream=True)
    points = collected.points()
    assert {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]} == {  # pyright: ignore[reportOptionalSubscript]
        "input": 12,
        "output": 4,
    }
    assert points["gen_ai.client.operation.duration"][0].count == 1
    assert points["gen_ai.server.time_to_first_token"][0].count == 1
    assert points["gen_ai.server.time_to_first_token"][0].explicit_bounds[0] == 0.001


async def test_a_broken_stream_is_an_error() -> None:
    collected = Collected(one=follow([Outcome(fault="reset", fault_after_pieces=2)]))
    await collected.rig.ask(stream=True)
    assert collected.spans()[-1].status.status_code is StatusCode.ERROR
    assert collected.points()["gen_ai.client.operation.duration"][0].attributes["error.type"] == "StreamBroken"  # pyright: ignore[reportOptionalSubscript]


async def test_a_collector_receives_both() -> None:
    received: list[str] = []

    async def take(request: web.Request) -> web.Response:
        await request.read()
        received.append(request.path)
        return web.Response()

    app = web.Application()
    app.router.add_post("/{path:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    rig = Rig()
    exporting = export_to(f"http://127.0.0.1:{port}/", rig.observed)
    rig.pipeline.observer = exporting.observer
    await rig.ask()
    await exporting.aclose()
    await runner.cleanup()
    assert sorted(set(received)) == ["/v1/metrics", "/v1/traces"]
