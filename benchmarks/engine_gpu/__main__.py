"""Command line: measures as much as fits the time, most important first, and writes after every part."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.engine_gpu.report import build_report, render
from benchmarks.engine_gpu.shapes import SHAPES, SMOKE, Sizes, tiny
from local_engine.config import ModelConfig


@dataclass
class Run:
    """What was measured so far, and how long there still is."""

    output: Path | None
    deadline: float
    machine: dict[str, Any]
    commit: str
    results: dict[str, Any] = field(default_factory=dict[str, Any])

    def attempt(self, path: tuple[str, ...], needed_seconds: float, measure: Callable[[], Any]) -> Any:
        """Measure one part, write everything down, and return the figures; None, said in the report, without any."""
        figures = self.obtain(path, needed_seconds, measure)
        if figures is not None:
            place = self.results
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = figures
            self.write()
        return figures

    def obtain(self, path: tuple[str, ...], needed_seconds: float, make: Callable[[], Any]) -> Any:
        """What `make` returns; None where it fails or has no time left, and the report says which."""
        name, left = "/".join(path), self.deadline - time.monotonic()
        if left < needed_seconds:
            self.results.setdefault("left_out", {})[name] = f"{left:.0f} s left, {needed_seconds:.0f} s needed"
            self.write()
            return None
        began = time.monotonic()
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - one part must not cost the others their figures
            self.results.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"
            self.write()
            return None
        finally:
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    def write(self) -> None:
        if self.output is not None:
            self.output.parent.mkdir(parents=True, exist_ok=True)
            self.output.write_text(json.dumps(self.report(), indent=2) + "\n", encoding="utf-8")

    def report(self) -> dict[str, Any]:
        return build_report(self.machine, self.commit, self.results)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    complaint = missing(is_smoke=options.smoke)
    if complaint is not None:
        print(complaint, file=sys.stderr)
        return 2
    run = Run(options.output, time.monotonic() + options.budget_seconds, machine(is_smoke=options.smoke), commit())
    shapes = [SHAPES[name] for name in options.models]
    if options.smoke:
        measure_everything(run, [tiny(shape) for shape in shapes], SMOKE, "cpu")
    else:
        measure_everything(run, shapes, Sizes(), "cuda")
    print(json.dumps(run.report()) if options.json else render(run.report()))
    return 1 if run.results.get("failed") else 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_gpu", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")
    parser.add_argument("--output", type=Path, default=None, help="default: benchmarks/results/engine_gpu.json")
    parser.add_argument("--smoke", action="store_true", help="every part once, tiny, interpreted on a CPU: no figures")
    parser.add_argument("--budget-seconds", type=float, default=540.0)
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
    return f"engine_gpu needs these packages: {', '.join(absent)}." if absent else None


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
    """Correctness, the device's limits, then each model; torch and triton are imported only here, where a GPU is."""
    import torch

    from benchmarks.engine_gpu import checks, parts
    from benchmarks.engine_gpu.device import measure_rates

    device = torch.device(device_name)
    if device.type == "cuda":
        run.attempt(("kernels_against_references",), 60, lambda: checks.measure(device))
    else:
        run.results["left_out"] = {"kernels_against_references": "the interpreted tests hold them"}
    measure = partial(measure_rates, device, copy_bytes=sizes.copy_bytes, product_side=sizes.product_side)
    rates = run.obtain(("rates",), 5, measure)
    if rates is None:
        return
    run.results["copy_bytes_per_second"] = rates.copy_bytes_per_second
    run.results["bf16_flops_per_second"] = rates.bf16_flops_per_second
    for shape in shapes:
        parts.measure_model(run, shape, rates, device, sizes)
        parts.give_memory_back()


if __name__ == "__main__":
    raise SystemExit(main())
