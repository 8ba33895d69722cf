"""`python -m local_engine bench`: loads the model, sweeps, prints a table or one JSON object."""

import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from local_engine.assembly import build_engine
from local_engine.bench import Point, fit_step_time, report, sweep
from local_engine.config import EngineConfig
from local_engine.packages import print_progress


def run_bench(
    path: Path,
    config: EngineConfig,
    *,
    concurrencies: list[int],
    prompt_tokens: int,
    output_tokens: int,
    is_json: bool,
) -> int:
    """Measure and print; returns the exit status."""
    engine = build_engine(path, config, progress=print_progress)
    points = sweep(
        engine, concurrencies, prompt_tokens=prompt_tokens, output_tokens=output_tokens, progress=print_progress
    )
    if is_json:
        measured = {"prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
        print(json.dumps(report(engine, points) | measured))
    else:
        _print_table(points)
    return 0


def _print_table(points: list[Point]) -> None:
    table = Table("concurrency", "output tok/s", "prefill tok/s", "step ms")
    for point in points:
        table.add_row(
            str(point.concurrency),
            f"{point.output_tokens_per_second:.1f}",
            f"{point.prefill_tokens_per_second:.0f}",
            f"{point.decode_step_seconds * 1000:.1f}",
        )
    console = Console()
    console.print(table)
    if fit := fit_step_time(points):
        fixed, slope = fit.fixed_seconds * 1000, fit.per_answer_seconds * 1000
        console.print(f"step time = {fixed:.1f} ms + {slope:.2f} ms per answer (R² {fit.r_squared:.3f})")
