"""The worked break-even report, and measurements of its claims."""

import time
from pathlib import Path
from typing import Any

from benchmarks.break_even.plots import write_plots
from benchmarks.break_even.study import Study, study_month
from benchmarks.break_even.text import write_text
from benchmarks.report import Bar, build_report, options, publish


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--report", type=Path, metavar="DIR", help="write DIR/break-even.md and DIR/images/*.png")
    chosen = parser.parse_args()
    started = time.perf_counter()
    study = study_month()
    seconds = time.perf_counter() - started
    if chosen.report is not None:
        write_plots(study, chosen.report / "images")
        (chosen.report / "break-even.md").write_text(write_text(study), encoding="utf-8")
    publish(measure(study, seconds), chosen, study.report.verdict)


def measure(study: Study, seconds: float) -> dict[str, Any]:
    """The standard object of every benchmark here."""
    apart = abs(study.simulated_saving_usd / study.expected_saving_of_simulated_arrivals_usd - 1)
    share = study.overflow_saving_usd / study.fluid_saving_usd
    results = {
        "requests": study.report.observed.requests,
        "study_seconds": seconds,
        "fluid_saving_usd": study.fluid_saving_usd,
        "overflow_saving_usd": study.overflow_saving_usd,
        "queue_saving_usd": study.queue_saving_usd,
        "simulated_saving_usd": study.simulated_saving_usd,
        "queue_share_of_fluid": study.queue_saving_usd / study.fluid_saving_usd,
    }
    bars = [
        Bar("simulated saving of instant overflow, off the formula", apart, 0.01, "most"),
        Bar("share of the fluid bound that instant overflow keeps", share, 0.9, "least"),
    ]
    return build_report("break_even", results, bars)


if __name__ == "__main__":
    main()
