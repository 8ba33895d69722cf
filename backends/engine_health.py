"""What inference engines say of their load: ours at `/health`, vLLM and SGLang in their Prometheus metrics. Pure."""

import math
import re
from collections.abc import Iterator
from typing import Final, cast

import msgspec

from backends.protocol import BackendHealth

_SAMPLE: Final = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{[^}]*\})?\s+(\S+)", re.MULTILINE)


def parse_engine_health(status: int, body: bytes) -> BackendHealth:
    """Our engine's `/health`: `{"status": "ok" | "stalled" | "draining", "free_slots", "running", ...}`."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return BackendHealth(False, f"health answered {status} without JSON")
    if not isinstance(document, dict):
        return BackendHealth(False, f"health answered {status} without a JSON object")
    fields = cast(dict[str, object], document)
    state = fields.get("status")
    return BackendHealth(
        is_healthy=status == 200 and state == "ok",
        detail=state if isinstance(state, str) else "",
        free_slots=_count(fields.get("free_slots")),
        running_requests=_count(fields.get("running")),
        waiting_requests=_count(fields.get("waiting")),
        queue_seconds=_seconds(fields.get("queue_seconds")),
    )


def parse_vllm_metrics(text: str, *, max_running: int | None) -> BackendHealth:
    """vLLM's `/metrics`. `max_running` is its --max-num-seqs, which it does not publish: without it, slots are unknown.

    Free slots are 0 while anything waits: the engine itself found no room.
    """
    samples = dict(_sums(text))
    usage = samples.get("vllm:kv_cache_usage_perc", samples.get("vllm:gpu_cache_usage_perc"))
    return _from_metrics(
        samples.get("vllm:num_requests_running"),
        samples.get("vllm:num_requests_waiting"),
        max_running,
        f"KV cache {usage:.0%} used" if usage is not None else "",
    )


def parse_sglang_metrics(text: str, *, max_running: int | None) -> BackendHealth:
    """SGLang's `/metrics` (started with --enable-metrics)."""
    samples = dict(_sums(text))
    usage = samples.get("sglang:token_usage")
    return _from_metrics(
        samples.get("sglang:num_running_reqs"),
        samples.get("sglang:num_queue_reqs"),
        max_running,
        f"KV cache {usage:.0%} used" if usage is not None else "",
    )


def _from_metrics(running: float | None, waiting: float | None, slots: int | None, detail: str) -> BackendHealth:
    if running is None:
        return BackendHealth(True, "metrics lack the number of running requests")
    free = None
    if waiting:
        free = 0
    elif slots is not None:
        free = max(0, slots - int(running))
    return BackendHealth(
        is_healthy=True,
        detail=detail,
        free_slots=free,
        running_requests=int(running),
        waiting_requests=int(waiting) if waiting is not None else None,
        queue_seconds=None,
    )


def _sums(text: str) -> Iterator[tuple[str, float]]:
    """Each metric summed over its label sets (several engine cores, several models)."""
    totals: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            totals[name] = totals.get(name, 0.0) + number
    yield from totals.items()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(value)
