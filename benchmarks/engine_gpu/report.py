"""From measured rates to the JSON object and its bars. Pure: knows no device and no clock."""

from collections.abc import Mapping
from typing import Any, Final, TypedDict

Results = Mapping[str, Any]

# docs: the engine's targets on an H200, as shares of the ceiling of the same run.
SHARE_BARS: Final = {"b1": 0.70, "b64": 0.60, "b256": 0.50, "prefill": 0.60}
QWEN_B1_TOKENS_PER_SECOND: Final = 900.0
TRANSFORMERS_RATIO: Final = 3.0
OVERHEAD_SHARE: Final = 0.10


class Bar(TypedDict):
    """One target: what was measured against it, and whether it holds."""

    what: str
    value: float
    bar: float
    holds: bool


def at_least(what: str, value: float, bar: float) -> Bar:
    return Bar(what=what, value=round(value, 4), bar=bar, holds=value >= bar)


def at_most(what: str, value: float, bar: float) -> Bar:
    return Bar(what=what, value=round(value, 4), bar=bar, holds=value <= bar)


def share(measured: float, ceiling: float) -> float:
    """What part of the ceiling was reached; more than 1 means the ceiling or the measurement is wrong."""
    return measured / ceiling


def build_bars(results: Results) -> list[Bar]:
    """Bars for whatever was measured; what was left out for lack of time has none."""
    bars: list[Bar] = []
    llama = results.get("llama-3.1-8b", {}).get("bfloat16", {})
    for name, bar in SHARE_BARS.items():
        if name in llama:
            bars.append(at_least(f"llama-3.1-8b bfloat16 {name}: share of the ceiling", llama[name]["share"], bar))
    qwen = results.get("qwen3-0.6b", {}).get("bfloat16", {})
    if "b1" in qwen:
        served = qwen["b1"]["served_tokens_per_second"]
        bars.append(at_least("qwen3-0.6b bfloat16 b1: tokens per second", served, QWEN_B1_TOKENS_PER_SECOND))
    for name, model in results.items():
        if isinstance(model, Mapping) and "against_transformers" in model:
            ratio = model["against_transformers"]["ratio"]
            bars.append(at_least(f"{name}: output tokens per second over transformers'", ratio, TRANSFORMERS_RATIO))
    if "b256" in llama:
        overhead = llama["b256"]["overhead_share"]
        bars.append(at_most("llama-3.1-8b b256: scheduling and sampling, share of a step", overhead, OVERHEAD_SHARE))
    return bars


def build_report(machine: Mapping[str, Any], commit: str, results: Results) -> dict[str, Any]:
    """The one JSON object that every benchmark prints."""
    return {
        "name": "engine_gpu",
        "machine": dict(machine),
        "commit": commit,
        "results": dict(results),
        "bars": build_bars(results),
    }


def render(report: Mapping[str, Any]) -> str:
    """The bars as lines of text."""
    lines = [
        f"{bar['what']:<70} {bar['value']:>10} {bar['bar']:>8} {'holds' if bar['holds'] else 'fails'}"
        for bar in report["bars"]
    ]
    return "\n".join([f"{'what':<70} {'value':>10} {'bar':>8}", *lines])
