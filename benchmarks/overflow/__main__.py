"""How much more instant overflow keeps than a queue: simulated with the real decision, and measured on the engine.

    python -m benchmarks.overflow [--json] [--save] [--simulate-only] [--slots 16] [--seconds 60]

The simulation takes about 15 seconds; the measurement takes seven times `--seconds`, and starts the engine.
"""

import asyncio
from typing import Any

from benchmarks.overflow.example import LOADS, month_saving_usd
from benchmarks.overflow.measure import measure
from benchmarks.overflow.simulate import Simulated, simulate_overflow, simulate_queue
from benchmarks.report import Bar, build_report, options, publish

SEED = 4
CAPACITY_PER_SECOND = 32 / 9  # one request takes 0.28125 GPU-seconds


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--simulate-only", action="store_true")
    parser.add_argument("--hours", type=float, default=8.0, help="simulated at each load (the queue: four times that)")
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured at each load, each way")
    parser.add_argument("--output-tokens", type=int, default=32)
    chosen = parser.parse_args()
    results = simulated(chosen.hours)
    bars = [
        Bar("simulated: instant overflow, share of the fluid bound", results["overflow_share"], 0.95, "least"),
        Bar("simulated: a queue with the same promise, share of it", results["queue_share"], 0.55, "most"),
    ]
    report: dict[str, Any] = {"simulated": results}
    if not chosen.simulate_only:
        found = asyncio.run(
            measure(slots=chosen.slots, seconds=chosen.seconds, output_tokens=chosen.output_tokens, seed=SEED)
        )
        report["measured"] = found
        bars.append(_measured_bar(found))
    publish(build_report("overflow", report, bars), chosen, _sentence(results))


def simulated(hours: float) -> dict[str, Any]:
    """Both disciplines over the worked example's month."""
    bound = month_saving_usd({load: min(load, CAPACITY_PER_SECOND) for load in LOADS})
    overflow, queue = simulate_overflow(hours, SEED), simulate_queue(4 * hours, SEED)
    return {
        "fluid_bound_usd": round(bound, 2),
        "overflow_usd": round(overflow.month_saving_usd, 2),
        "queue_usd": round(queue.month_saving_usd, 2),
        "overflow_share": round(overflow.month_saving_usd / bound, 4),
        "queue_share": round(queue.month_saving_usd / bound, 4),
        "overflow_blocked": _blocked(overflow),
        "queue_p95_wait_seconds": {str(load): round(one.p95_wait_seconds, 3) for load, one in queue.levels.items()},
    }


def _blocked(one: Simulated) -> dict[str, float]:
    return {str(load): round(level.blocked_share, 6) for load, level in one.levels.items()}


def _measured_bar(found: dict[str, Any]) -> Bar:
    more = found["overflow"]["share_of_the_fluid_bound"] - found["queue"]["share_of_the_fluid_bound"]
    what = "measured: instant overflow above the queue, in shares of the fluid bound"
    return Bar(what, round(more, 4), 0.2, "least")


def _sentence(results: dict[str, Any]) -> str:
    return (
        f"Of ${results['fluid_bound_usd']} a month that the engine could save, instant overflow keeps "
        f"{results['overflow_share']:.0%} and a queue that keeps its promise {results['queue_share']:.0%}."
    )


if __name__ == "__main__":
    main()
