"""The measurements of one model, part by part; each part returns its figures for the report."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import torch

from benchmarks.engine_gpu import checks, engine, rivals
from benchmarks.engine_gpu.ceilings import DeviceRates, decode_tokens_per_second, prefill_tokens_per_second
from benchmarks.engine_gpu.device import give_memory_back, median_seconds
from benchmarks.engine_gpu.report import share
from benchmarks.engine_gpu.shapes import COMPARED, Sizes
from local_engine.config import ModelConfig, WeightFormat
from local_engine.errors import DeviceLost
from local_engine.kernels.gpu_runner import FUSED, SEPARATE, WAYS, OneRow
from local_engine.kernels.sampling import sample

# For all of transformers' configurations together, so that later parts have time, too.
COMPARISON_SECONDS = 150.0
MANY_ANSWERS: Final = "many_answers"


class Attempts(Protocol):
    """Measures parts while there is time. A part is named by its path; `needed_seconds` is what it may need."""

    def attempt(self, path: tuple[str, ...], needed_seconds: float, measure: Callable[[], Any]) -> Any:
        """The figures, which are also written to the report; None if there are none."""
        ...

    def obtain(self, path: tuple[str, ...], needed_seconds: float, make: Callable[[], Any]) -> Any:
        """What `make` returns, for later parts; None if it failed or found no time."""
        ...

    def measured(self, path: tuple[str, ...]) -> Any:
        """The figures of a part, None if there are none yet."""
        ...

    def is_settled(self, path: tuple[str, ...]) -> bool:
        """Whether a part has its figures, or has failed."""
        ...

    def seconds_left(self) -> float:
        """Until the time is spent."""
        ...


def measure_model(run: Attempts, shape: ModelConfig, rates: DeviceRates, device: torch.device, sizes: Sizes) -> None:
    """bfloat16 first, then transformers on the same weights, then the quantised formats. No model is built for what is
    measured already."""
    if is_measured(run, shape, sizes):
        return
    rival = run.obtain((shape.name, "transformers"), 15, partial(rivals.build, shape, device))
    if rival is None:
        return
    run.attempt((shape.name, "sampling_seconds"), 5, partial(sampling_seconds, shape.vocabulary_size, device, sizes))
    ground = Ground(shape, rates, device, ways_that_run(run))
    for kind in sizes.batches:
        ours = measure_format(run, rival, kind, ground, sizes)
        # Our caches are freed by now: transformers has the memory to itself.
        give_memory_back()
        if ours is not None and sizes.compares:
            compare_once(run, ours, rival, ground, sizes)
            give_memory_back()


@dataclass(frozen=True, slots=True)
class Ground:
    """What measurements share. `one_row`: the ways to compute a step of one row, without those that failed."""

    shape: ModelConfig
    rates: DeviceRates
    device: torch.device
    one_row: tuple[OneRow, ...] = WAYS


def compare_once(run: Attempts, ours: float, rival: Any, ground: Ground, sizes: Sizes) -> None:
    """transformers' continuous batching. Raises DeviceLost if it broke off on a GPU: later parts would lack memory and
    could capture nothing, since torch's allocator stays in a failed capture, even one that is not ours."""
    path = (ground.shape.name, "against_transformers")
    if run.is_settled(path):
        return
    figures = run.attempt(path, 60, partial(against_transformers, ours, rival, ground.shape, sizes, run.seconds_left))
    broke_off = figures is None or rivals.has_broken_off(figures["transformers_refused"])
    if broke_off and run.is_settled(path) and ground.device.type == "cuda":
        raise DeviceLost("transformers' continuous batching broke off")


def ways_that_run(run: Attempts) -> tuple[OneRow, ...]:
    """The ways, without those that fail or hang in a check: a process that built a model with one would end."""
    fails = {way for way, names in checks.NEEDED.items() if any(has_failed(run, (checks.PART, name)) for name in names)}
    if FUSED in fails:
        return (SEPARATE,)
    return tuple(way for way in WAYS if way not in fails)


def measure_format(run: Attempts, rival: Any, kind: WeightFormat, ground: Ground, sizes: Sizes) -> float | None:
    """One weight format, part by part; returns our output tokens per second in transformers' workload (bfloat16)."""
    shape, rates, batches = ground.shape, ground.rates, sizes.batches[kind]
    if is_complete(run, shape, kind, sizes):
        return run.measured((shape.name, kind, MANY_ANSWERS))
    rows_at_most, blocks = sizes.most_rows, sizes.blocks(engine.BLOCK_SIZE)
    weights = engine.StateDictWeights(rival.state_dict())
    build = partial(
        engine.build,
        shape,
        weights,
        kind=kind,
        blocks=blocks,
        max_rows=rows_at_most,
        device=ground.device,
        one_row=ground.one_row,
    )
    built = run.obtain((shape.name, kind, "load"), 10, build)
    if built is None:
        return None
    run.attempt(
        (shape.name, kind, "error_against_transformers"),
        5,
        partial(logit_error, built, rival, sizes.logit_prompt_tokens),
    )
    for rows in batches:
        ceiling = decode_tokens_per_second(shape, rates, batch=rows, context=sizes.context, weights=kind)
        run.attempt((shape.name, kind, f"b{rows}"), 25, partial(decode, built, rows, ceiling, sizes))
    ceiling = prefill_tokens_per_second(shape, rates, prompt=sizes.context, weights=kind)
    run.attempt((shape.name, kind, "prefill"), 10, partial(prefill, built, ceiling, sizes))
    if kind != COMPARED:
        return None
    return run.attempt((shape.name, kind, MANY_ANSWERS), 15, partial(many_answers, built, sizes))


def is_complete(run: Attempts, shape: ModelConfig, kind: WeightFormat, sizes: Sizes) -> bool:
    """Whether every part of a weight format has figures or has failed, or the format could not be loaded."""
    parts = ["error_against_transformers", *(f"b{rows}" for rows in sizes.batches[kind]), "prefill"]
    parts += [MANY_ANSWERS] if kind == COMPARED else []
    is_unloadable = run.is_settled((shape.name, kind, "load"))
    return is_unloadable or all(run.is_settled((shape.name, kind, part)) for part in parts)


def is_measured(run: Attempts, shape: ModelConfig, sizes: Sizes) -> bool:
    """Whether nothing is left to measure of a model. Without a figure of ours there is nothing to compare."""
    is_compared = (
        not sizes.compares
        or run.is_settled((shape.name, "against_transformers"))
        or run.measured((shape.name, COMPARED, MANY_ANSWERS)) is None
    )
    formats = all(is_complete(run, shape, kind, sizes) for kind in sizes.batches)
    return formats and is_compared and run.is_settled((shape.name, "sampling_seconds"))


def has_failed(run: Attempts, path: tuple[str, ...]) -> bool:
    """Whether a part was tried and has no figures."""
    return run.is_settled(path) and run.measured(path) is None


def prompts(shape: ModelConfig, count: int, tokens: int) -> list[list[int]]:
    """Random token ids, the same for the same arguments."""
    draw = random.Random(count * tokens)
    return [[draw.randrange(shape.vocabulary_size) for _ in range(tokens)] for _ in range(count)]


def decode(built: engine.Engine, rows: int, ceiling: float, sizes: Sizes) -> dict[str, float]:
    """Tokens per second of `rows` sequences of about `sizes.context` tokens: by the engine's loop, and by the device
    alone.

    All sample at temperature 1. `waiting` is the loop that finishes each step before it schedules the next.
    `overhead_share` is the part of a served step that is not the forward pass: scheduling, sampling, copies, waiting.
    """
    bare = engine.DeviceLoop(built, rows=rows, context=sizes.context, draws=False).tokens_per_second(sizes.decode_steps)
    alone = engine.DeviceLoop(built, rows=rows, context=sizes.context).tokens_per_second(sizes.decode_steps)
    built.runner.capture([rows])
    serve = partial(
        engine.serve,
        built,
        prompts(built.shape, rows, sizes.context - sizes.decode_steps),
        output_tokens=2 * sizes.decode_steps,
        max_tokens_per_step=sizes.tokens_per_step,
        temperature=1.0,
    )
    waiting_seconds = serve(runs_ahead=False).decode_step_seconds(rows)
    step_seconds = serve().decode_step_seconds(rows)
    return {
        "ceiling_tokens_per_second": ceiling,
        "served_tokens_per_second": rows / step_seconds,
        "waiting_tokens_per_second": rows / waiting_seconds,
        "device_tokens_per_second": alone,
        "forward_tokens_per_second": bare,
        "share": share(rows / step_seconds, ceiling),
        "device_share": share(alone, ceiling),
        "overhead_share": max(0.0, 1 - (rows / bare) / step_seconds),
        "served_step_seconds": step_seconds,
        "fuses_one_row": float(rows == 1 and built.runner.model.fuses_one_row),
        "overlaps_one_row": float(rows == 1 and built.runner.model.overlaps_one_row),
    }


def sampling_seconds(vocabulary: int, device: torch.device, sizes: Sizes) -> dict[str, dict[str, float]]:
    """Median duration of sampling alone: plainly, and with top-p, which takes sixteen more passes."""
    seconds: dict[str, dict[str, float]] = {}
    for rows in sizes.batches["bfloat16"]:
        logits = torch.randn(rows, vocabulary, device=device) * 3
        plain = engine.plain_sampling(rows, device)
        nucleus = replace(plain, top_p=plain.top_p * 0.95)
        seconds[f"b{rows}"] = {
            "plain": median_seconds(partial(sample, logits, plain, cuts=False), device, repeats=sizes.repeats),
            "top_p": median_seconds(partial(sample, logits, nucleus), device, repeats=sizes.repeats),
        }
    return seconds


def prefill(built: engine.Engine, ceiling: float, sizes: Sizes) -> dict[str, float]:
    """Prompt tokens per second through the engine's loop, one token of output each, kernels compiled beforehand."""
    texts = prompts(built.shape, sizes.prefill_prompts, sizes.context)
    serve = partial(engine.serve, built, texts, output_tokens=1, max_tokens_per_step=sizes.tokens_per_step)
    serve()
    served = serve()
    rate = served.prefill_tokens / served.prefill_seconds
    return {"ceiling_tokens_per_second": ceiling, "tokens_per_second": rate, "share": share(rate, ceiling)}


def logit_error(built: engine.Engine, rival: Any, prompt_tokens: int) -> dict[str, Any]:
    """Relative error of the logits after one prompt, and whether both choose the same token: with the prompt computed
    as a whole, and with its last token computed by a decode step."""
    prompt = prompts(built.shape, 1, prompt_tokens)[0]
    wanted = rivals.last_logits(rival, prompt, built.device)
    figures: dict[str, Any] = {}
    for name, got in (("prompt", engine.prompt_logits(built, prompt)), ("decode", engine.decode_logits(built, prompt))):
        figures[f"{name}_relative_error"] = float((got - wanted).norm() / wanted.norm())
        figures[f"{name}_same_token"] = bool(got.argmax() == wanted.argmax())
    return figures


def many_answers(built: engine.Engine, sizes: Sizes) -> float:
    """Output tokens per second in the workload that transformers also gets, with kernels compiled beforehand."""
    texts = prompts(built.shape, sizes.rival_prompts, sizes.rival_prompt_tokens)
    output_tokens = sizes.rival_output_tokens
    serve = partial(engine.serve, built, texts, output_tokens=output_tokens, max_tokens_per_step=sizes.tokens_per_step)
    serve()
    served = serve()
    return served.output_tokens / served.seconds


def against_transformers(
    ours: float, rival: Any, shape: ModelConfig, sizes: Sizes, seconds_left: Callable[[], float]
) -> dict[str, Any]:
    """Output tokens per second in one workload, both sides warm, transformers in its best configuration."""
    texts = prompts(shape, sizes.rival_prompts, sizes.rival_prompt_tokens)
    end = time.monotonic() + COMPARISON_SECONDS

    def left() -> float:
        return min(seconds_left(), end - time.monotonic())

    theirs, refused = rivals.best_effort(rival, texts, sizes.rival_output_tokens, left, sizes.rival_cache)
    return {
        "ours_tokens_per_second": ours,
        "transformers_tokens_per_second": theirs,
        "transformers_refused": refused,
        "ratio": ours / max(theirs.values()),
    }
