"""The device's own limits, and timing by its events."""

import statistics
from collections.abc import Callable

import torch

from benchmarks.engine_gpu.ceilings import DeviceRates

COPY_BYTES = 4 << 30
PRODUCT_SIDE = 8192


def median_seconds(run: Callable[[], object], *, warm_ups: int = 3, repeats: int = 10) -> float:
    """Median device time of `run`, by events; warm-ups keep compilation and allocation out of it."""
    for _ in range(warm_ups):
        run()
    seconds: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    return statistics.median(seconds)


def measure_rates(device: torch.device) -> DeviceRates:
    """On random data: zeros run faster than anything real."""
    return DeviceRates(_copy_rate(device), _product_rate(device))


def _copy_rate(device: torch.device) -> float:
    source = torch.randn(COPY_BYTES // 2, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / median_seconds(lambda: target.copy_(source))


def _product_rate(device: torch.device) -> float:
    shape = (PRODUCT_SIDE, PRODUCT_SIDE)
    a = torch.randn(shape, dtype=torch.bfloat16, device=device)
    b = torch.randn(shape, dtype=torch.bfloat16, device=device)
    return 2 * PRODUCT_SIDE**3 / median_seconds(lambda: a @ b)
