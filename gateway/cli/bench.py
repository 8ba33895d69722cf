"""`breakeven bench`: measure the throughput curve of the engine, or of a server of your own, for prices by time."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from rich.table import Table

from gateway.cli.options import AsJson, http_url
from gateway.cli.serve.children import engine_supervisor
from gateway.composition.deployment import Deployment, load_deployment
from gateway.composition.engine_monitor import measure_curve
from gateway.composition.served_speed import measure_backend
from gateway.config.engine_curve import LARGEST_CONCURRENCY, CurveFile, MeasuredEngine, fit_engine, save_engine_curve
from gateway.config.first_files import write_first_files
from gateway.config.home import Home, create_home, find_home
from gateway.config.settings import Settings, load_settings
from gateway.economics.errors import EconomicsError
from gateway.economics.throughput_curve import MINIMUM_POINTS, ThroughputCurve
from gateway.errors import ConfigurationError, StateError
from gateway.extras import install_command
from gateway.process.server import free_port
from gateway.routing.rules import specialty_of

BAR_WIDTH = 20
POLL_SECONDS = 0.5
START_SECONDS = 300.0

app = typer.Typer(help="Measure this machine.")


@app.callback()
def group() -> None:
    """Measure this machine."""


@app.command()
def engine(
    url: str | None = typer.Option(
        None,
        callback=http_url,
        help="A running engine's base URL, as in http://127.0.0.1:9000/v1; left out, one is started for this.",
    ),
    concurrency: str | None = typer.Option(
        None, help="Concurrencies to sweep, at least three; up to as many as the engine answers when left out."
    ),
    plot: Path | None = typer.Option(None, help="Draw the curve into this PNG (needs the reports extra)."),
    as_json: AsJson = False,
) -> None:
    """Sweep concurrency, fit t(N) = a + bN (docs/economics.md) and store the curve for routing and break-even."""
    home = find_home()
    create_home(home)  # the curve is to be written there
    if url is None:
        write_first_files(home)
    whole = load_settings(home)
    settings = whole.engine
    console = Console(stderr=True)
    steps = None if concurrency is None else parse_steps(concurrency)
    try:
        if url is None:
            curve = asyncio.run(_measure_own(home, whole, steps, console))
        else:
            curve = asyncio.run(measure_curve(url.rstrip("/"), settings.name, sweep=steps, progress=console.print))
        measured = save_engine_curve(home.curve_file, curve)
    except httpx.HTTPError as error:
        raise StateError(f"the engine at {url or home.engine_log} does not answer: {error}; is it running?") from error
    except EconomicsError as error:
        raise StateError(f"the sweep makes no curve: {error}") from error
    if plot is not None:
        draw(measured, plot)
    if as_json:
        print(json.dumps(describe(measured)))
        return
    out = Console()
    out.print(curve_table(measured, f"{settings.name} on this machine"))
    out.print(
        f"{fit_text(measured.engine.curve)} Working point N* = {measured.engine.concurrency}; prefill "
        f"{measured.engine.prefill_tokens_per_second:.0f} tokens/s. Written to {home.curve_file}."
    )


@app.command()
def backend(
    name: Annotated[str, typer.Argument(help="Its name under `backends` in breakeven.yaml.")],
    model: Annotated[
        str | None, typer.Option(help="Which of its models in rules.yaml; the first when left out.")
    ] = None,
    concurrency: Annotated[str, typer.Option(help="Concurrencies to sweep, at least three.")] = "1,4,16,64",
    as_json: AsJson = False,
) -> None:
    """Sweep a server of your own, such as a vLLM; print the `throughput` that its block needs beside gpu_hour_usd."""
    deployment, steps = load_deployment(find_home()), parse_steps(concurrency)
    chosen = _model_at(deployment, name, model)
    upstream_model = deployment.catalogue.models(deployment.rules)[chosen].upstream_model
    curve = asyncio.run(_measure_block(deployment, name, upstream_model, steps, Console(stderr=True)))
    try:
        measured = fit_engine(curve)
    except EconomicsError as error:
        raise StateError(f"the sweep makes no curve: {error}") from error
    points = [list(point) for point in curve.points]
    throughput = {"prefill_tokens_per_second": curve.prefill_tokens_per_second, "points": points}
    if as_json:
        print(json.dumps({**describe(measured), "throughput": throughput}))
        return
    out = Console()
    out.print(curve_table(measured, f"{chosen} at {name}"))
    out.print(fit_text(measured.engine.curve))
    print("\nFor its block in breakeven.yaml, with what an hour of it costs as gpu_hour_usd:\n")
    print(f"    throughput: {{prefill_tokens_per_second: {curve.prefill_tokens_per_second}, points: {points}}}")


def _model_at(deployment: Deployment, name: str, model: str | None) -> str:
    """Raises ConfigurationError."""
    blocks = deployment.settings.backends
    if name not in blocks:
        raise ConfigurationError(f"no backend {name!r} in breakeven.yaml; there are: {', '.join(blocks) or 'none'}")
    known = deployment.catalogue.models(deployment.rules)
    here = [one for one, spec in known.items() if spec.backend == name and specialty_of(spec.supports) is None]
    if not here:
        raise ConfigurationError(f"rules.yaml names no chat model of {name}: write one under `models`")
    if model is not None and model not in here:
        raise ConfigurationError(f"{model!r} is no chat model of {name} in rules.yaml; there are: {', '.join(here)}")
    return model or here[0]


async def _measure_block(
    deployment: Deployment, name: str, upstream_model: str, steps: tuple[int, ...], console: Console
) -> CurveFile:
    adapter = deployment.table.adapters[name]
    try:
        return await measure_backend(adapter, upstream_model, sweep=steps, progress=console.print)
    finally:
        await adapter.aclose()


def parse_steps(text: str) -> tuple[int, ...]:
    """Parses concurrencies such as `1,2,4`. Raises StateError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 9 and 0 < int(part) <= LARGEST_CONCURRENCY for part in parts):
        raise StateError(
            f"--concurrency takes numbers from 1 to {LARGEST_CONCURRENCY} and commas, as in 1,2,4; not {text!r}"
        )
    if len(set(map(int, parts))) < MINIMUM_POINTS:
        raise StateError(f"--concurrency takes at least {MINIMUM_POINTS} different numbers, as in 1,2,4; not {text!r}")
    return tuple(int(part) for part in parts)


async def _measure_own(home: Home, settings: Settings, steps: tuple[int, ...] | None, console: Console) -> CurveFile:
    """Start the configured engine, measure it, stop it."""
    url = f"http://127.0.0.1:{free_port()}/v1"
    console.print(f"starting {settings.engine.model} (log: {home.engine_log})")
    child = asyncio.create_task(engine_supervisor(home, settings, url).run())
    try:
        await _until_healthy(url, home)
        return await measure_curve(url, settings.engine.name, sweep=steps, progress=console.print)
    finally:
        child.cancel()
        await asyncio.gather(child, return_exceptions=True)


async def _until_healthy(url: str, home: Home) -> None:
    """Return when the engine answers. Raises StateError after START_SECONDS."""
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    async with httpx.AsyncClient(base_url=url.removesuffix("/v1"), timeout=5, trust_env=False) as client:
        while asyncio.get_running_loop().time() < deadline:
            with suppress(httpx.HTTPError):
                if (await client.get("/health")).is_success:
                    return
            await asyncio.sleep(POLL_SECONDS)
    raise StateError(f"the engine did not start within {START_SECONDS:.0f} s; {home.engine_log} says why")


def curve_table(measured: MeasuredEngine, title: str) -> Table:
    """The points as numbers and as bars."""
    points = measured.engine.curve.points
    fastest = max(point.decode_tokens_per_second for point in points)
    table = Table("concurrency", "decode tokens/s, all together", "", "seconds per step", title=title)
    for point in points:
        bar = "█" * max(1, round(BAR_WIDTH * point.decode_tokens_per_second / fastest))
        speed, seconds = f"{point.decode_tokens_per_second:.1f}", f"{point.step_seconds:.4f}"
        table.add_row(str(point.concurrency), speed, bar, seconds)
    return table


def fit_text(curve: ThroughputCurve) -> str:
    """The line, or that the points are on none."""
    line = f"t(N) = {curve.step_base_seconds:.4f} + {curve.step_seconds_per_sequence:.4f}·N s"
    if not curve.is_interpolated:
        return f"{line}."
    return (
        f"The points are on no line that an engine can have (the nearest, {line}, is off by up to "
        f"{curve.largest_relative_residual:.0%}), so steps between them are interpolated. If anything else ran "
        "meanwhile, measure again."
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
        "is_interpolated": curve.is_interpolated,
        "working_concurrency": measured.engine.concurrency,
        "prefill_tokens_per_second": measured.engine.prefill_tokens_per_second,
    }


def draw(measured: MeasuredEngine, path: Path) -> None:
    """The measured points and the fit as a PNG. Raises StateError without matplotlib, or if it cannot be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise StateError(f"drawing needs matplotlib: {install_command('reports')}") from error
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
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:  # ValueError: no format has this suffix
        raise StateError(f"cannot draw into {path}: {error}") from error
