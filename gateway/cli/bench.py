"""`breakeven bench engine`: measure the running engine's throughput curve, which break-even and routing use."""

import asyncio
import json
from pathlib import Path

import httpx
import typer
from rich.console import Console
from rich.table import Table

from gateway.config.engine_curve import MeasuredEngine, save_engine_curve
from gateway.config.home import find_home
from gateway.config.settings import load_settings
from gateway.economics.errors import EconomicsError
from gateway.engine_monitor import measure_curve
from gateway.errors import StateError

app = typer.Typer(help="Measure this machine.")


@app.callback()
def group() -> None:
    """Measure this machine."""


@app.command()
def engine(
    url: str = typer.Option(..., help="The engine's base URL, as in http://127.0.0.1:9000/v1."),
    concurrency: str = typer.Option("1,2,4,8", help="Concurrencies to sweep, at least three."),
    plot: Path | None = typer.Option(None, help="Draw the curve into this PNG (needs the reports extra)."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object."),
) -> None:
    """Sweep concurrency, fit t(N) = a + bN (ECONOMICS §2) and store the curve for routing and break-even."""
    home = find_home()
    name = load_settings(home).engine.name
    console = Console(stderr=True)
    steps = tuple(int(step) for step in concurrency.split(","))
    try:
        curve = asyncio.run(measure_curve(url.rstrip("/"), name, sweep=steps, progress=console.print))
        measured = save_engine_curve(home.curve_file, curve)
    except httpx.HTTPError as error:
        raise StateError(f"the engine at {url} does not answer: {error}; is it running?") from error
    except EconomicsError as error:
        raise StateError(f"the sweep makes no curve: {error}") from error
    if plot is not None:
        draw(measured, plot)
    if as_json:
        print(json.dumps(describe(measured)))
        return
    table = Table("concurrency", "decode tokens/s, all together", "seconds per step", title=f"{name} on this machine")
    for point in measured.engine.curve.points:
        table.add_row(str(point.concurrency), f"{point.decode_tokens_per_second:.1f}", f"{point.step_seconds:.4f}")
    out = Console()
    out.print(table)
    fit = measured.engine.curve
    out.print(
        f"t(N) = {fit.step_base_seconds:.4f} + {fit.step_seconds_per_sequence:.4f}·N s; working point N* = "
        f"{measured.engine.concurrency}; prefill {measured.engine.prefill_tokens_per_second:.0f} tokens/s. "
        f"Written to {home.curve_file}."
    )


def describe(measured: MeasuredEngine) -> dict[str, object]:
    """The curve as JSON values."""
    curve = measured.engine.curve
    return {
        "points": [
            {"concurrency": p.concurrency, "decode_tokens_per_second": p.decode_tokens_per_second} for p in curve.points
        ],
        "step_base_seconds": curve.step_base_seconds,
        "step_seconds_per_sequence": curve.step_seconds_per_sequence,
        "largest_relative_residual": curve.largest_relative_residual,
        "working_concurrency": measured.engine.concurrency,
        "prefill_tokens_per_second": measured.engine.prefill_tokens_per_second,
    }


def draw(measured: MeasuredEngine, path: Path) -> None:
    """The measured points and the fit as a PNG. Raises StateError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StateError("drawing needs matplotlib: pip install 'breakeven[reports]'") from error
    curve = measured.engine.curve
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    largest = curve.largest_concurrency
    line = [1 + (largest - 1) * step / 50 for step in range(51)]
    axes.plot(line, [curve.tokens_per_second(n) for n in line], label="N / t(N)")
    axes.plot(
        [p.concurrency for p in curve.points], [p.decode_tokens_per_second for p in curve.points], "o", label="measured"
    )
    axes.set(xlabel="requests at once", ylabel="output tokens per second, all together", ylim=(0, None))
    axes.legend()
    figure.savefig(path, dpi=120)
