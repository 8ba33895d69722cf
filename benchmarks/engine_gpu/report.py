"""From measured rates to the JSON object and its bars. Pure: knows no device and no clock."""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

Results = Mapping[str, Any]

# Shares of the ceiling that follows from the same run's rates: they mean the same on an H100 and on an H200.
SHARE_BARS: Final = {"b1": 0.70, "b64": 0.60, "b256": 0.50, "prefill": 0.60}
QWEN_B1_TOKENS_PER_SECOND: Final = 900.0
TRANSFORMERS_RATIO: Final = 3.0
OVERHEAD_SHARE: Final = 0.10


class Bar(TypedDict):
    """One target: what was measured against it, on which device, and whether it holds."""

    what: str
    value: float
    bar: float
    holds: bool
    device: str


def at_least(what: str, value: float, bar: float, device: str) -> Bar:
    return Bar(what=what, value=round(value, 4), bar=bar, holds=value >= bar, device=device)


def at_most(what: str, value: float, bar: float, device: str) -> Bar:
    return Bar(what=what, value=round(value, 4), bar=bar, holds=value <= bar, device=device)


def share(measured: float, ceiling: float) -> float:
    """The share of the ceiling that was reached; above 1, the ceiling or the measurement is wrong."""
    return measured / ceiling


def build_bars(results: Results, device: str) -> list[Bar]:
    """Bars for everything that was measured; parts that were left out have none."""
    bars: list[Bar] = []
    llama = results.get("llama-3.1-8b", {}).get("bfloat16", {})
    for name, bar in SHARE_BARS.items():
        if name in llama:
            what = f"llama-3.1-8b bfloat16 {name}: share of the ceiling"
            bars.append(at_least(what, llama[name]["share"], bar, device))
    qwen = results.get("qwen3-0.6b", {}).get("bfloat16", {})
    if "b1" in qwen:
        served = qwen["b1"]["served_tokens_per_second"]
        bars.append(at_least("qwen3-0.6b bfloat16 b1: tokens per second", served, QWEN_B1_TOKENS_PER_SECOND, device))
    for name, model in results.items():
        if isinstance(model, Mapping) and "against_transformers" in model:
            ratio = model["against_transformers"]["ratio"]
            what = f"{name}: output tokens per second over transformers'"
            bars.append(at_least(what, ratio, TRANSFORMERS_RATIO, device))
    if "b256" in llama:
        overhead = llama["b256"]["overhead_share"]
        what = "llama-3.1-8b b256: scheduling and sampling, share of a step"
        bars.append(at_most(what, overhead, OVERHEAD_SHARE, device))
    return bars


def build_report(machine: Mapping[str, Any], commit: str, results: Results) -> dict[str, Any]:
    """The one JSON object that every benchmark prints."""
    return {
        "name": "engine_gpu",
        "machine": dict(machine),
        "commit": commit,
        "results": dict(results),
        "bars": build_bars(results, str(machine.get("gpu"))),
    }


def render(report: Mapping[str, Any]) -> str:
    """The device, its measured limits, and the bars, as lines of text."""
    results = report["results"]
    rates = {"TB/s copied": "copy_bytes_per_second", "TFLOP/s in bfloat16": "bf16_flops_per_second"}
    measured = [f"{results[name] / 1e12:.3g} {unit}" for unit, name in rates.items() if name in results]
    lines = [
        f"{bar['what']:<70} {bar['value']:>10} {bar['bar']:>8} {'holds' if bar['holds'] else 'fails'}"
        for bar in report["bars"]
    ]
    device = ", ".join([str(report["machine"].get("gpu")), *measured])
    return "\n".join([device, f"{'what':<70} {'value':>10} {'bar':>8}", *lines])
