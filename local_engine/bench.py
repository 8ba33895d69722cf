"""Measures this machine's throughput curve: step time against concurrency, and the line t(N) = a + b N through it.

Runs the engine in this process, without HTTP. The line is what break-even needs: `a` is a step's cost with an empty
batch, `b` what each further answer adds to it.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from local_engine.assembly import Engine
from local_engine.request import Request
from local_engine.sampling_params import SamplingParams

FIRST_ORDINARY_TOKEN = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency. Tokens per second over all answers; seconds are the median step's."""

    concurrency: int
    output_tokens_per_second: float
    prefill_tokens_per_second: float
    decode_step_seconds: float
    decode_steps: int


@dataclass(frozen=True, slots=True)
class StepTimeFit:
    """Seconds of a decode step with N answers: fixed + per_answer * N. Residuals are measured minus fitted."""

    fixed_seconds: float
    per_answer_seconds: float
    residual_seconds: list[float]
    r_squared: float


def sweep(
    engine: Engine,
    concurrencies: list[int],
    *,
    prompt_tokens: int,
    output_tokens: int,
    progress: Callable[[str], None],
) -> list[Point]:
    """Measure each concurrency with prompts that share no prefix; one unmeasured round warms the machine up."""
    _measure(engine, 1, 0, prompt_tokens, min(4, output_tokens))
    points: list[Point] = []
    for index, concurrency in enumerate(concurrencies, 1):
        points.append(_measure(engine, concurrency, index, prompt_tokens, output_tokens))
        progress(f"concurrency {concurrency}: {points[-1].output_tokens_per_second:.1f} output tokens per second")
    return points


def _measure(engine: Engine, concurrency: int, round_number: int, prompt_tokens: int, output_tokens: int) -> Point:
    """Prefill all prompts, then time the steps in which every answer decodes."""
    core = engine.core
    params = SamplingParams(temperature=0.0, max_tokens=output_tokens)
    requests = [
        Request(f"{round_number}-{i}", random_prompt(engine, 1000 * round_number + i, prompt_tokens), params)
        for i in range(concurrency)
    ]
    for request in requests:
        core.add(request)
    began = time.perf_counter()
    while any(request.output_tokens == 0 for request in requests):
        core.step()
    prefilled = time.perf_counter()
    before = sum(request.output_tokens for request in requests)
    steps: list[float] = []
    while core.has_work:
        report = core.step()
        if report.rows == concurrency:
            steps.append(report.seconds)
    ended = time.perf_counter()
    decoded = sum(request.output_tokens for request in requests) - before
    return Point(
        concurrency=concurrency,
        output_tokens_per_second=decoded / (ended - prefilled),
        prefill_tokens_per_second=concurrency * prompt_tokens / (prefilled - began),
        decode_step_seconds=statistics.median(steps) if steps else (ended - prefilled) / max(1, output_tokens - 1),
        decode_steps=len(steps),
    )


def random_prompt(engine: Engine, seed: int, tokens: int) -> list[int]:
    """Token ids that no other seed's prompt begins with."""
    random = np.random.default_rng(seed)
    return [int(i) for i in random.integers(FIRST_ORDINARY_TOKEN, engine.tokenizer.vocabulary_size, tokens)]


def fit_step_time(points: list[Point]) -> StepTimeFit | None:
    """Least squares through the median steps; None for fewer than two concurrencies."""
    if len({point.concurrency for point in points}) < 2:
        return None
    counts = np.array([point.concurrency for point in points], dtype=float)
    seconds = np.array([point.decode_step_seconds for point in points])
    slope, fixed = np.polyfit(counts, seconds, 1)
    residuals = seconds - (fixed + slope * counts)
    spread = float(((seconds - seconds.mean()) ** 2).sum())
    return StepTimeFit(
        fixed_seconds=float(fixed),
        per_answer_seconds=float(slope),
        residual_seconds=[float(value) for value in residuals],
        r_squared=1.0 - float((residuals**2).sum()) / spread if spread else 1.0,
    )


def report(engine: Engine, points: list[Point]) -> dict[str, object]:
    """What `bench --json` prints."""
    fit = fit_step_time(points)
    return {
        "model": engine.model.name,
        "weights": engine.config.weights,
        "device": engine.config.device,
        "points": [asdict(point) for point in points],
        "fit": asdict(fit) if fit else None,
    }
