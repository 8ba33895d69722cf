"""What engines say of their load."""

import pytest

from backends.engine_health import parse_engine_health, parse_sglang_metrics, parse_vllm_metrics
from backends.protocol import BackendHealth

OURS: list[tuple[int, bytes, BackendHealth]] = [
    (
        200,
        b'{"status":"ok","free_slots":3,"running":5,"waiting":2,"queue_seconds":0.5,"model":"m"}',
        BackendHealth(True, "ok", 3, 5, 2, 0.5),
    ),
    (200, b'{"status":"ok"}', BackendHealth(True, "ok")),
    (200, b'{"status":"draining","free_slots":3}', BackendHealth(False, "draining", 3)),
    (503, b'{"status":"stalled"}', BackendHealth(False, "stalled")),
    (503, b'{"status":"ok"}', BackendHealth(False, "ok")),
    (
        200,
        b'{"status":"ok","free_slots":-1,"running":true,"waiting":"2","queue_seconds":-1}',
        BackendHealth(True, "ok"),
    ),
    (200, b"[]", BackendHealth(False, "health answered 200 without a JSON object")),
    (502, b"<html>", BackendHealth(False, "health answered 502 without JSON")),
]


@pytest.mark.parametrize(("status", "body", "expected"), OURS)
def test_our_engine(status: int, body: bytes, expected: BackendHealth) -> None:
    assert parse_engine_health(status, body) == expected


VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} %s
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:nonsense abc
vllm:infinite +Inf
"""


def test_vllm() -> None:
    assert parse_vllm_metrics(VLLM % "0.0", max_running=8) == BackendHealth(True, "KV cache 25% used", 3, 5, 0)
    assert parse_vllm_metrics(VLLM % "4.0", max_running=8).free_slots == 0
    assert parse_vllm_metrics(VLLM % "0.0", max_running=None).free_slots is None
    assert parse_vllm_metrics(VLLM % "0.0", max_running=4).free_slots == 0
    older = "vllm:num_requests_running 1\nvllm:gpu_cache_usage_perc 0.5\n"
    assert parse_vllm_metrics(older, max_running=2) == BackendHealth(True, "KV cache 50% used", 1, 1)
    assert parse_vllm_metrics("", max_running=2) == BackendHealth(True, "metrics lack the number of running requests")


def test_sglang() -> None:
    text = "sglang:num_running_reqs 2\nsglang:num_queue_reqs 0\nsglang:token_usage 0.1\n"
    assert parse_sglang_metrics(text, max_running=3) == BackendHealth(True, "KV cache 10% used", 1, 2, 0)
