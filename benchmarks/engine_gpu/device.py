"""The device's own limits, its memory, and timing: by events on a GPU, or by the clock on a CPU instead."""

import gc
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.engine_gpu.ceilings import DeviceRates


def elapsed_seconds(run: Callable[[], object], device: torch.device) -> float:
    """How long the device works on what `run` launches."""
    if device.type != "cuda":
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def median_seconds(run: Callable[[], object], device: torch.device, *, repeats: int = 10) -> float:
    """Median device time of `run`, after warm-ups for compilation and allocation."""
    for _ in range(min(3, repeats)):
        run()
    return statistics.median(elapsed_seconds(run, device) for _ in range(repeats))


def give_memory_back() -> None:
    """Free what is no longer used: captured graphs, models and transformers' sessions are reference cycles."""
    gc.collect()
    torch.cuda.empty_cache()


def measure_rates(device: torch.device, *, copy_bytes: int, product_side: int) -> DeviceRates:
    """On random data: zeros run faster than anything real."""
    return DeviceRates(_copy_rate(device, copy_bytes), _product_rate(device, product_side))


def _copy_rate(device: torch.device, size: int) -> float:
    source = torch.randn(size // 2, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    return 2 * size / median_seconds(lambda: target.copy_(source), device)


def _product_rate(device: torch.device, side: int) -> float:
    a, b = (torch.randn((side, side), dtype=torch.bfloat16, device=device) for _ in range(2))
    return 2 * side**3 / median_seconds(lambda: a @ b, device)
