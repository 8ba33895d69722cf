"""The load that engines report."""

import pytest

from backends.engine_health import (
    parse_engine_health,
    parse_llama_cpp_metrics,
    parse_sglang_metrics,
    parse_vllm_metrics,
)
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


VLLM_0_32_0 = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="smollm"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="smollm"} 3.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm",reason="capacity"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm",reason="deferred"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smollm"} 0.01098901098901095
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="smollm"} 6414.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="smollm"} 1.7958202824799948e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="smollm"} 0.0
vllm:external_prefix_cache_queries_total{engine="0",model_name="smollm"} 0.0
vllm:prompt_tokens_cached_total{engine="0",model_name="smollm"} 0.0
vllm:admission_rejections_total{model_name="smollm",reason="max_num_queued_reqs"} 0.0
"""
"""Recorded on 2026-11-27, with --max-num-seqs 4 and seven streams; most other metrics left out."""
VLLM_0_29 = r"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/a \"quoted\" {name}"} 3.0
vllm:num_requests_running{engine="1",model_name="org/a \"quoted\" {name}"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/a \"quoted\" {name}"} %(waiting)s
vllm:num_requests_waiting{engine="1",model_name="org/a \"quoted\" {name}"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} %(for_room)s
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.0e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.788e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 600000.0
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 7.0
"""
VLLM_0_10 = """# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} %s
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:num_requests_running_nonsense 100
vllm:num_requests_running abc
vllm:num_requests_running +Inf
vllm:num_requests_running -4
"""
VLLM_0_6 = """vllm:num_requests_running{model_name="m"} 1.0
vllm:num_requests_swapped{model_name="m"} 0.0
vllm:num_requests_waiting{model_name="m"} 0.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.5
vllm:cpu_cache_usage_perc{model_name="m"} 0.9
vllm:gpu_prefix_cache_hit_rate{model_name="m"} 0.4
"""


@pytest.mark.parametrize(
    ("text", "slots", "expected"),
    [
        (VLLM_0_32_0, 4, BackendHealth(True, "KV cache 1% used, 0% of prompt tokens cached", 0, 4, 3)),
        (
            VLLM_0_29 % {"waiting": "3.0", "for_room": "0.0"},
            8,
            BackendHealth(True, "KV cache 75% used, 60% of prompt tokens cached", 3, 5, 3),
        ),
        (
            VLLM_0_29 % {"waiting": "5.0", "for_room": "2.0"},
            8,
            BackendHealth(True, "KV cache 75% used, 60% of prompt tokens cached", 0, 5, 5),
        ),
        (VLLM_0_10 % "0.0", 8, BackendHealth(True, "KV cache 25% used", 5, 3, 0)),
        (VLLM_0_10 % "4.0", 8, BackendHealth(True, "KV cache 25% used", 0, 3, 4)),
        (VLLM_0_10 % "0.0", None, BackendHealth(True, "KV cache 25% used", None, 3, 0)),
        (VLLM_0_10 % "4.0", None, BackendHealth(True, "KV cache 25% used", 0, 3, 4)),
        (VLLM_0_10 % "0.0", 2, BackendHealth(True, "KV cache 25% used", 0, 3, 0)),
        (VLLM_0_6, 2, BackendHealth(True, "KV cache 50% used, 40% of prompt tokens cached", 1, 1, 0)),
        ("", 2, BackendHealth(True, "metrics lack the number of running requests")),
    ],
)
def test_vllm(text: str, slots: int | None, expected: BackendHealth) -> None:
    assert parse_vllm_metrics(text, max_running=slots) == expected


SGLANG_0_3 = """sglang:num_running_reqs{model_name="m"} 2.0
sglang:num_queue_reqs{model_name="m"} 0.0
sglang:token_usage{model_name="m"} 0.28
sglang:cache_hit_rate{model_name="m"} 0.75
"""
TWO_RANKS = """sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 2.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.0
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 0.0
"""
TWO_COPIES_WITH_PRIORITIES = """sglang:num_running_reqs{dp_rank="0",model_name="m",priority="",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="0",model_name="m",priority="1",tp_rank="0"} 2.0
sglang:num_running_reqs{dp_rank="1",model_name="m",priority="",tp_rank="1"} 3.0
sglang:num_running_reqs{dp_rank="1",model_name="m",priority="1",tp_rank="1"} 3.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",priority="",tp_rank="0"} 1.0
sglang:num_queue_reqs{dp_rank="0",model_name="m",priority="1",tp_rank="0"} 1.0
sglang:token_usage{dp_rank="0",model_name="m",tp_rank="0"} 0.28
sglang:token_usage{dp_rank="1",model_name="m",tp_rank="1"} 0.5
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SGLANG_0_3, BackendHealth(True, "KV cache 28% used, 75% of prompt tokens cached", 6, 2, 0)),
        (TWO_RANKS, BackendHealth(True, "", 6, 2, 0)),
        (TWO_COPIES_WITH_PRIORITIES, BackendHealth(True, "KV cache 50% used", 0, 5, 1)),
    ],
)
def test_sglang(text: str, expected: BackendHealth) -> None:
    assert parse_sglang_metrics(text, max_running=8) == expected


LLAMA_CPP_0_7 = """# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing %d
# HELP llamacpp:requests_deferred Number of requests deferred
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred %d
# HELP llamacpp:n_busy_slots_per_decode Average number of busy slots per llama_decode() call
# TYPE llamacpp:n_busy_slots_per_decode gauge
llamacpp:n_busy_slots_per_decode 1.8
"""


@pytest.mark.parametrize(
    ("running", "waiting", "slots", "free"),
    [(1, 0, 4, 3), (4, 0, 4, 0), (4, 2, 4, 0), (1, 0, None, None), (2, 1, None, 0)],
)
def test_llama_cpp(running: int, waiting: int, slots: int | None, free: int | None) -> None:
    expected = BackendHealth(True, "", free, running, waiting)
    assert parse_llama_cpp_metrics(LLAMA_CPP_0_7 % (running, waiting), max_running=slots) == expected
