"""Parses the load that engines report: ours at `/health`, llama.cpp, vLLM and SGLang as Prometheus metrics. Pure."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from backends.formats.json_objects import NOT_JSON
from backends.protocol import BackendHealth

_LABEL: Final = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_RANKS: Final = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of SGLang's processes that serve one copy of a model: each reports the same values."""


def _samples_of(*names: str) -> re.Pattern[str]:
    """Matches name, labels and value of these metrics only: the page has thousands of lines, read twice a second."""
    named = "|".join(map(re.escape, names))
    return re.compile(rf'^({named})(?:\{{((?:[^"}}]|"(?:[^"\\]|\\.)*")*)\}})?[ \t]+(\S+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Names:
    """An engine's metric names. Of several, newest first, the first one present is used."""

    running: str
    waiting: str
    kv_used: Collection[str]
    cache_hit_rate: str
    cache_hits: str
    cache_queries: str

    def pattern(self) -> re.Pattern[str]:
        named = [self.running, self.waiting, *self.kv_used, self.cache_hit_rate, self.cache_hits, self.cache_queries]
        return _samples_of(*filter(None, named))  # compiled once: the module `re` keeps what it compiled


_VLLM: Final = _Names(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_used=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    cache_hit_rate="vllm:gpu_prefix_cache_hit_rate",
    cache_hits="vllm:prefix_cache_hits_total",
    cache_queries="vllm:prefix_cache_queries_total",
)
_REASONS: Final = _samples_of("vllm:num_requests_waiting_by_reason")
_SGLANG: Final = _Names(
    running="sglang:num_running_reqs",
    waiting="sglang:num_queue_reqs",
    kv_used=("sglang:token_usage",),
    cache_hit_rate="sglang:cache_hit_rate",
    cache_hits="",
    cache_queries="",
)
_LLAMA_CPP: Final = _Names(
    running="llamacpp:requests_processing",
    waiting="llamacpp:requests_deferred",
    kv_used=(),
    cache_hit_rate="",
    cache_hits="",
    cache_queries="",
)


def parse_engine_health(status: int, body: bytes) -> BackendHealth:
    """Our engine's `/health`: `{"status": "ok" | "stalled" | "draining", "free_slots", "running", ...}`."""
    try:
        document = msgspec.json.decode(body)
    except NOT_JSON:
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
    """vLLM's `/metrics`, 0.6 to 0.32. `max_running` is its --max-num-seqs, which it does not publish (of all its
    data-parallel engines together): without it, slots are unknown.

    Free slots are 0 while any request waits for capacity. Requests deferred for other reasons (reported by newer
    versions) do not count: a long prefill postponed by design is no congestion.
    """
    found = _read(text, _VLLM)
    for_room = [value for _, labels, value in _samples(text, _REASONS) if labels.get("reason") == "capacity"]
    return _health(found, max_running, sum(for_room) if for_room else found.waiting)


def parse_sglang_metrics(text: str, *, max_running: int | None) -> BackendHealth:
    """SGLang's `/metrics` (started with --enable-metrics); `max_running` is its --max-running-requests."""
    found = _read(text, _SGLANG)
    return _health(found, max_running, found.waiting)


def parse_llama_cpp_metrics(text: str, *, max_running: int | None) -> BackendHealth:
    """llama-server's `/metrics` (started with --metrics); `max_running` is its --parallel."""
    found = _read(text, _LLAMA_CPP)
    return _health(found, max_running, found.waiting)


@dataclass(frozen=True, slots=True)
class _Found:
    running: float | None
    waiting: float | None
    detail: str


def _read(text: str, names: _Names) -> _Found:
    """Counts are summed over copies of the model; shares are those of the fullest copy."""
    by_copy: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for name, labels, value in _samples(text, names.pattern()):
        if not labels.get("priority"):  # SGLang reports a queue's total, and again by priority
            copy = frozenset((label, said) for label, said in labels.items() if label not in _RANKS)
            values = by_copy.setdefault(name, {})
            values[copy] = max(value, values.get(copy, 0.0))

    def total(name: str) -> float | None:
        return sum(by_copy[name].values()) if name in by_copy else None

    def most(name: str) -> float | None:
        return max(by_copy[name].values()) if name in by_copy else None

    used = next((share for name in names.kv_used if (share := most(name)) is not None), None)
    queries = total(names.cache_queries)
    cached = (total(names.cache_hits) or 0.0) / queries if queries else most(names.cache_hit_rate)
    said = [f"KV cache {used:.0%} used"] if used is not None else []
    said += [f"{cached:.0%} of prompt tokens cached"] if cached is not None else []
    return _Found(total(names.running), total(names.waiting), ", ".join(said))


def _health(found: _Found, slots: int | None, waiting_for_room: float | None) -> BackendHealth:
    if found.running is None:
        return BackendHealth(True, "metrics lack the number of running requests")
    free = None
    if waiting_for_room:
        free = 0
    elif slots is not None:
        free = max(0, slots - int(found.running))
    return BackendHealth(
        is_healthy=True,
        detail=found.detail,
        free_slots=free,
        running_requests=int(found.running),
        waiting_requests=int(found.waiting) if found.waiting is not None else None,
        queue_seconds=None,
    )


def _samples(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Every sample that is finite and not negative."""
    for name, labels, value in pattern.findall(text):
        try:
            number = float(value)
        except ValueError:
            continue
        if 0 <= number < math.inf:
            yield name, dict(_LABEL.findall(labels)) if labels else {}, number


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        return None
    return float(value)
