"""The engine on a GPU against the GPU's own limits and transformers: what fits into the time, most important first."""

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.engine_gpu.report import render
from benchmarks.engine_gpu.run import AnotherDevice, Run, conclude, is_under_way, leave_out_of_time, unlimited
from benchmarks.engine_gpu.shapes import SHAPES, SMOKE, Sizes, in_order, tiny
from benchmarks.engine_gpu.supervision import (
    CANNOT,
    DONE,
    FAILED,
    LOST,
    OUT_OF_TIME,
    ended_after,
    leave,
    run_process,
    supervise,
)
from local_engine.config import ModelConfig
from local_engine.errors import DeviceLost


def main(arguments: list[str] | None = None) -> int:
    began = time.monotonic()
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    complaint = missing(is_smoke=options.smoke)
    if complaint is not None:
        print(complaint, file=sys.stderr)
        return CANNOT
    if options.worker:
        leave(measure_as_worker(options, began))
    if options.smoke:
        run = begin(options, began)
        status = measure(run, options)
        show(run.report(), is_json=options.json)
        return status
    return measure_in_processes(given, options, began)


def measure_as_worker(options: argparse.Namespace, began: float) -> int:
    try:
        run = begin(options, began)
    except AnotherDevice as error:
        print(error, file=sys.stderr)
        return CANNOT
    return measure(run, options)


def measure_in_processes(given: Sequence[str], options: argparse.Namespace, began: float) -> int:
    """Let processes measure, and show what they have written, however they ended."""
    output: Path = options.output
    if not options.resume:
        output.unlink(missing_ok=True)

    def spawn(further: Sequence[str], limit_seconds: float) -> int:
        command = [sys.executable, "-m", "benchmarks.engine_gpu", *given, "--worker", *further]
        status = run_process(command, limit_seconds)
        if status == OUT_OF_TIME:
            leave_out_of_time(output)
            return LOST
        # A process that is ended because a part hangs has the status of a failure, too.
        return LOST if status == FAILED and is_under_way(output) else status

    # The first import of torch on a machine takes up to a minute, and counts towards the budget.
    budget_seconds = began + options.budget_seconds - time.monotonic()
    status = supervise(spawn, budget_seconds, resumes=options.resume)
    if status == CANNOT:
        return CANNOT
    report = conclude(output)
    if report is None:
        print("engine_gpu measured nothing: its process ended before the first part.", file=sys.stderr)
        return FAILED
    show(report, is_json=options.json)
    return DONE if status == DONE else FAILED


def begin(options: argparse.Namespace, began: float) -> Run:
    """A run whose time counts from `began`; with `--resume` it keeps what `--output` holds."""
    import torch

    from benchmarks.engine_gpu.rivals import is_generating
    from local_engine.gpu_faults import check_answers

    device = torch.device("cpu" if options.smoke else "cuda")

    def check() -> None:
        check_answers(device)
        if is_generating():
            raise DeviceLost("transformers still generates, and others would be measured beside it")

    # Interpreted parts have no time limit: their figures mean nothing anyway.
    deadline = float("inf") if options.smoke else began + options.budget_seconds
    limited = unlimited if options.smoke else ended_after
    run = Run(options.output, deadline, machine(is_smoke=options.smoke), commit(), check, limited)
    if options.resume:
        run.resume()
    return run


def measure(run: Run, options: argparse.Namespace) -> int:
    """Measure everything in this process."""
    shapes = [SHAPES[name] for name in options.models]
    try:
        if options.smoke:
            measure_everything(run, [tiny(shape) for shape in shapes], SMOKE, "cpu")
        else:
            measure_everything(run, shapes, Sizes(), "cuda")
    except DeviceLost as error:
        print(error, file=sys.stderr)
        return LOST
    except RuntimeError:
        # An error between parts comes from something that an earlier part broke; a new process starts clean.
        traceback.print_exc()
        return LOST
    run.write()
    return FAILED if run.results.get("failed") else DONE


def show(report: dict[str, Any], *, is_json: bool) -> None:
    print(json.dumps(report) if is_json else render(report), flush=True)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_gpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")
    parser.add_argument("--output", type=Path, default=None, help="default: benchmarks/results/engine_gpu.json")
    parser.add_argument("--smoke", action="store_true", help="every part once, tiny, interpreted on a CPU: no figures")
    parser.add_argument("--budget-seconds", type=float, default=540.0, help="not for --smoke (default: 540)")
    parser.add_argument("--resume", action="store_true", help="keep what the output holds, and measure what it lacks")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--models", nargs="+", choices=list(SHAPES), default=["llama-3.1-8b", "qwen3-0.6b"])
    options = parser.parse_args(arguments)
    if options.output is None and not options.smoke:
        options.output = Path("benchmarks/results/engine_gpu.json")
    return options


def missing(*, is_smoke: bool) -> str | None:
    """What this machine lacks, in one sentence, or None."""
    import torch

    if is_smoke and os.environ.get("TRITON_INTERPRET") != "1":
        return "engine_gpu --smoke needs TRITON_INTERPRET=1 in its environment."
    if not is_smoke and not torch.cuda.is_available():
        return "engine_gpu needs an NVIDIA GPU that torch can use, and this machine has none."
    absent = [name for name in ("triton", "transformers") if find_spec(name) is None]
    if absent:
        return f"engine_gpu needs these packages: {', '.join(absent)}."
    import numpy as np
    import triton

    return uninterpretable(triton.__version__, np.__version__) if is_smoke else None


def uninterpretable(triton_version: str, numpy_version: str) -> str | None:
    """What to install if Triton's interpreter fails with this numpy, else None; on a GPU any works."""
    triton, numpy = (tuple(map(int, text.split(".")[:2])) for text in (triton_version, numpy_version))
    if triton >= (3, 7) or numpy < (2, 4):
        return None
    return (
        f"engine_gpu --smoke cannot run: the interpreter of triton {triton_version} fails with numpy {numpy_version}. "
        "Install numpy below 2.4 or triton 3.7; on a GPU both work as they are."
    )


def machine(*, is_smoke: bool) -> dict[str, Any]:
    import torch
    import transformers
    import triton

    gpu: dict[str, Any] = {"gpu": "none: interpreted, figures mean nothing"}
    if not is_smoke:
        properties = torch.cuda.get_device_properties(0)
        gpu = {
            "gpu": properties.name,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
        }
    return gpu | {
        "torch": torch.__version__,
        "triton": triton.__version__,
        "transformers": transformers.__version__,
        "python": sys.version.split()[0],
    }


def commit() -> str:
    """The commit measured, or "unknown" in a copy of the tree without its history."""
    try:
        command = ["git", "rev-parse", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def measure_everything(run: Run, shapes: list[ModelConfig], sizes: Sizes, device_name: str) -> None:
    """Correctness, the device's limits, then each model; torch and triton are imported only here."""
    import torch

    from benchmarks.engine_gpu import checks, parts
    from benchmarks.engine_gpu.device import give_memory_back, measure_rates

    device = torch.device(device_name)
    if device.type == "cuda":
        for name, check in checks.CHECKS.items():
            run.attempt((checks.PART, name), 15, partial(checks.measure, check, device))
        give_memory_back()
    else:
        run.results["left_out"] = {checks.PART: "the interpreted tests hold them"}
    measure = partial(measure_rates, device, copy_bytes=sizes.copy_bytes, product_side=sizes.product_side)
    rates = run.obtain(("rates",), 5, measure)
    if rates is None:
        return
    run.results["copy_bytes_per_second"] = rates.copy_bytes_per_second
    run.results["bf16_flops_per_second"] = rates.bf16_flops_per_second
    for shape, some in in_order(shapes, sizes):
        parts.measure_model(run, shape, rates, device, some)
        give_memory_back()


if __name__ == "__main__":
    raise SystemExit(main())
