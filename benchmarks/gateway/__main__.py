"""CPU, throughput, added latency, streams and memory of three gateways, interleaved; ours also with two workers.

    python -m benchmarks.gateway [--json] [--save] [--rounds 3] [--requests 2000] [--streams 400]

Each round runs every gateway once at every load, so that a noisy minute affects them alike; the best round is kept.
The mock and the load generator use the same CPU cores: compare ratios, since requests per second hold for this setup
only. CPU per request is that of the gateway's processes. LiteLLM and TensorZero are installed into .venv-litellm and
.venv-tensorzero on the first run.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.gateway import rivals
from benchmarks.gateway.rivals import Rival
from benchmarks.report import Bar, build_report, options, publish

MODEL = "mock-16x0"
CONNECTIONS = (1, 8, 64)
STREAM_CONNECTIONS = 8
OURS_TWICE = "breakeven, 2 workers"
GATEWAYS = ("breakeven", OURS_TWICE, "tensorzero", "litellm")
SLOW = frozenset({"litellm"})
SLOW_SHARE = 10
"""LiteLLM gets a tenth of the requests: it would take most of the run otherwise."""


@dataclass(frozen=True, slots=True)
class Sizes:
    requests: int
    streams: int
    rounds: int


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    rivals.ensure_environments()
    report = measure(Sizes(chosen.requests, chosen.streams, chosen.rounds))
    publish(report, chosen, table(report))


def measure(sizes: Sizes) -> dict[str, Any]:
    """All gateways up at once, idle while another one is measured."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(rivals.mock())
        began = {}
        running: list[Rival] = []
        for start in (rivals.ours, partial(rivals.ours, workers=2), rivals.tensorzero, rivals.litellm):
            since = time.monotonic()
            running.append(stack.enter_context(start(url, MODEL)))
            began[running[-1].name] = round(time.monotonic() - since, 1)
        found: dict[str, dict[str, Any]] = {one.name: {"start_seconds": began[one.name]} for one in running}
        for one in running:
            drive(one, requests=50, connections=4)  # warm
            found[one.name]["idle_megabytes"] = one.memory_megabytes()
        found["direct"] = {}
        for _ in range(sizes.rounds):
            direct_round(url, sizes, found["direct"])
            for one in running:
                rival_round(one, sizes, found[one.name])
        for one in running:
            found[one.name]["loaded_megabytes"] = one.memory_megabytes()
    add_overheads(found)
    return build_report("gateway", found, bars(found))


def rival_round(one: Rival, sizes: Sizes, best: dict[str, Any]) -> None:
    share = SLOW_SHARE if one.name in SLOW else 1
    for connections in CONNECTIONS:
        keep_best(best, f"at_{connections}", drive(one, requests=sizes.requests // share, connections=connections))
    streamed = drive(one, requests=sizes.streams // share, connections=STREAM_CONNECTIONS, is_stream=True)
    keep_best(best, "streams_at_8", streamed)
    keep_best(
        best, "streams_at_1", drive(one, requests=max(20, sizes.streams // 4 // share), connections=1, is_stream=True)
    )


def direct_round(url: str, sizes: Sizes, best: dict[str, Any]) -> None:
    """The mock without any gateway: the baseline for added latency."""
    for connections in CONNECTIONS:
        keep_best(best, f"at_{connections}", load(url, "none", MODEL, sizes.requests, connections, is_stream=False))
    keep_best(best, "streams_at_1", load(url, "none", MODEL, sizes.streams // 4, 1, is_stream=True))


def drive(one: Rival, *, requests: int, connections: int, is_stream: bool = False) -> dict[str, Any]:
    """One run of the load generator, with the gateway's CPU. Raises RuntimeError if a request failed."""
    before = one.cpu_seconds()
    seen = load(one.url, one.key, one.model, requests, connections, is_stream=is_stream)
    seen["cpu_ms_per_request"] = round((one.cpu_seconds() - before) / max(1, seen["requests"]) * 1000, 3)
    if seen["errors"]:
        raise RuntimeError(f"{one.name}: {seen['errors']} errors at {connections} connections: {seen['first_error']}")
    return seen


def load(url: str, key: str, model: str, requests: int, connections: int, *, is_stream: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gateway.client", url, "--key", key, "--model", model]
    command += ["--connections", str(connections), "--requests", str(requests), *(["--stream"] if is_stream else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def keep_best(best: dict[str, Any], at: str, seen: dict[str, Any]) -> None:
    """Keep the round with the most requests per second, and the least CPU of any round."""
    seen = {name: value for name, value in seen.items() if name not in {"seconds", "first_error", "errors"}}
    mine = best.get(at)
    if mine is None:
        best[at] = seen
        return
    cpu = min(mine.get("cpu_ms_per_request", 0.0), seen.get("cpu_ms_per_request", 0.0))
    if seen["requests_per_second"] > mine["requests_per_second"]:
        best[at] = seen
    if "cpu_ms_per_request" in best[at]:
        best[at]["cpu_ms_per_request"] = cpu


def add_overheads(found: Mapping[str, dict[str, Any]]) -> None:
    """What each gateway adds to the mock's own latency, one request at a time."""
    direct = found["direct"]
    for name in GATEWAYS:
        mine = found[name]
        mine["added_ms_at_1"] = {
            q: round(mine["at_1"]["latency_ms"][q] - direct["at_1"]["latency_ms"][q], 3) for q in ("p50", "p99")
        }
        mine["stream_added_ms_at_1"] = {
            "first_chunk": round(
                mine["streams_at_1"]["first_chunk_ms"]["p50"] - direct["streams_at_1"]["first_chunk_ms"]["p50"], 3
            ),
            "whole": round(mine["streams_at_1"]["latency_ms"]["p50"] - direct["streams_at_1"]["latency_ms"]["p50"], 3),
        }


def bars(found: Mapping[str, dict[str, Any]]) -> list[Bar]:
    """The targets for requests and streams."""

    def ratio(at: str, what: str, over: str) -> float:
        return round(found["breakeven"][at][what] / found[over][at][what], 3)

    return [
        Bar("requests/s at 8 connections / LiteLLM's", ratio("at_8", "requests_per_second", "litellm"), 20, "least"),
        Bar(
            "requests/s at 8 connections / TensorZero's",
            ratio("at_8", "requests_per_second", "tensorzero"),
            0.6,
            "least",
        ),
        Bar(
            "CPU per 16-chunk stream / TensorZero's",
            ratio("streams_at_8", "cpu_ms_per_request", "tensorzero"),
            1,
            "most",
        ),
        Bar(
            "added to a whole stream at 1 connection, ms",
            found["breakeven"]["stream_added_ms_at_1"]["whole"],
            40,
            "most",
        ),
    ]


def table(report: Mapping[str, Any]) -> str:
    """The report for the terminal."""
    head = f"{'':21}{'CPU ms':>9}{'req/s @1':>10}{'@8':>8}{'@64':>8}{'p50+':>8}{'p99+':>8}{'stream CPU':>12}{'MB':>8}"
    lines = [head]
    for name in GATEWAYS:
        mine = report["results"][name]
        speeds = "".join(
            f"{mine[f'at_{n}']['requests_per_second']:>{width}.0f}"
            for n, width in zip(CONNECTIONS, (10, 8, 8), strict=True)
        )
        added = f"{mine['added_ms_at_1']['p50']:>8.2f}{mine['added_ms_at_1']['p99']:>8.2f}"
        tail = f"{mine['streams_at_8']['cpu_ms_per_request']:>12.2f}{mine['loaded_megabytes']:>8.0f}"
        lines.append(f"{name:21}{mine['at_8']['cpu_ms_per_request']:>9.2f}{speeds}{added}{tail}")
    lines += [
        f"{'holds' if bar['holds'] else 'MISSED':7}{bar['what']}: {bar['value']} ({bar['bar']})"
        for bar in report["bars"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
