"""What is measured of one model, part by part; each part returns its figures as they go into the report."""

import gc
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.engine_gpu import engine, rivals
from benchmarks.engine_gpu.ceilings import DeviceRates, decode_tokens_per_second, prefill_tokens_per_second
from benchmarks.engine_gpu.device import median_seconds
from benchmarks.engine_gpu.report import share
from local_engine.config import ModelConfig, WeightFormat
from local_engine.kernels.sampling import sample

CONTEXT = 1024
DECODE_STEPS = 64
BATCHES: dict[WeightFormat, tuple[int, ...]] = {"bfloat16": (1, 64, 256), "fp8": (1, 256), "int4": (1,)}
TOKENS_PER_STEP = 8192
PREFILL_PROMPTS = 32
RIVAL_PROMPTS, RIVAL_PROMPT_TOKENS, RIVAL_OUTPUT_TOKENS = 256, 512, 128

# Names of the part, the seconds it may take, the measurement.
Attempt = Callable[[tuple[str, ...], float, Callable[[], Any]], None]


def measure_model(attempt: Attempt, shape: ModelConfig, rates: DeviceRates, device: torch.device) -> None:
    """bfloat16 first, then transformers on the very same weights, then the quantised formats."""
    rival = rivals.build(shape, device)
    weights = engine.StateDictWeights(rival.state_dict())
    blocks = 256 * (CONTEXT + 2 * DECODE_STEPS) // engine.BLOCK_SIZE + 64
    attempt((shape.name, "sampling_seconds"), 10, partial(sampling_seconds, shape.vocabulary_size, device))
    for kind, batches in BATCHES.items():
        built = engine.build(shape, weights, kind=kind, blocks=blocks, max_rows=256, device=device)
        attempt((shape.name, kind, "error_against_transformers"), 10, partial(logit_error, built, rival))
        for rows in batches:
            ceiling = decode_tokens_per_second(shape, rates, batch=rows, context=CONTEXT, weights=kind)
            attempt((shape.name, kind, f"b{rows}"), 40, partial(decode, built, rows, ceiling))
        ceiling = prefill_tokens_per_second(shape, rates, prompt=CONTEXT, weights=kind)
        attempt((shape.name, kind, "prefill"), 20, partial(prefill, built, ceiling))
        if kind == "bfloat16":
            attempt((shape.name, "against_transformers"), 90, partial(against_transformers, built, rival))
        del built
        gc.collect()
        torch.cuda.empty_cache()


def prompts(shape: ModelConfig, count: int, tokens: int) -> list[list[int]]:
    """Random token ids, the same for the same arguments."""
    draw = random.Random(count * tokens)
    return [[draw.randrange(shape.vocabulary_size) for _ in range(tokens)] for _ in range(count)]


def decode(built: engine.Engine, rows: int, ceiling: float) -> dict[str, float]:
    """Tokens per second of `rows` sequences of about CONTEXT tokens: by the engine's loop, and by the device alone.

    All draw at temperature 1. `overhead_share` is what of a served step is not the forward pass: scheduling, sampling,
    copies, waiting.
    """
    bare = engine.DeviceLoop(built, rows=rows, context=CONTEXT, draws=False).tokens_per_second(DECODE_STEPS)
    alone = engine.DeviceLoop(built, rows=rows, context=CONTEXT).tokens_per_second(DECODE_STEPS)
    built.runner.capture([rows])
    served = engine.serve(
        built,
        prompts(built.shape, rows, CONTEXT - DECODE_STEPS),
        output_tokens=2 * DECODE_STEPS,
        max_tokens_per_step=TOKENS_PER_STEP,
        temperature=1.0,
    )
    step_seconds = served.decode_step_seconds(rows)
    return {
        "ceiling_tokens_per_second": ceiling,
        "served_tokens_per_second": rows / step_seconds,
        "device_tokens_per_second": alone,
        "forward_tokens_per_second": bare,
        "share": share(rows / step_seconds, ceiling),
        "device_share": share(alone, ceiling),
        "overhead_share": max(0.0, 1 - (rows / bare) / step_seconds),
        "served_step_seconds": step_seconds,
    }


def sampling_seconds(vocabulary: int, device: torch.device) -> dict[str, dict[str, float]]:
    """Median duration of the sampling kernel alone: plainly, and with top-p, which takes sixteen more passes."""
    seconds: dict[str, dict[str, float]] = {}
    for rows in (1, 64, 256):
        logits = torch.randn(rows, vocabulary, device=device) * 3
        plain = engine.plain_sampling(rows, device)
        nucleus = replace(plain, top_p=plain.top_p * 0.95)
        seconds[f"b{rows}"] = {
            "plain": median_seconds(partial(sample, logits, plain)),
            "top_p": median_seconds(partial(sample, logits, nucleus)),
        }
    return seconds


def prefill(built: engine.Engine, ceiling: float) -> dict[str, float]:
    """Prompt tokens per second through the engine's loop, one token of output each, kernels compiled beforehand."""
    texts = prompts(built.shape, PREFILL_PROMPTS, CONTEXT)
    serve = partial(engine.serve, built, texts, output_tokens=1, max_tokens_per_step=TOKENS_PER_STEP)
    serve()
    served = serve()
    rate = served.prefill_tokens / served.prefill_seconds
    return {"ceiling_tokens_per_second": ceiling, "tokens_per_second": rate, "share": share(rate, ceiling)}


def logit_error(built: engine.Engine, rival: Any) -> dict[str, Any]:
    """Relative error of the logits after one prompt, and whether both choose the same token."""
    prompt = prompts(built.shape, 1, 200)[0]
    wanted = rivals.last_logits(rival, prompt, built.device)
    got = engine.prompt_logits(built, prompt)
    error = float((got - wanted).norm() / wanted.norm())
    return {"relative_error": error, "same_token": bool(got.argmax() == wanted.argmax())}


def against_transformers(built: engine.Engine, rival: Any) -> dict[str, Any]:
    """Output tokens per second over one workload, both sides warm; transformers in the best of its configurations."""
    texts = prompts(built.shape, RIVAL_PROMPTS, RIVAL_PROMPT_TOKENS)
    output_tokens = RIVAL_OUTPUT_TOKENS
    serve = partial(engine.serve, built, texts, output_tokens=output_tokens, max_tokens_per_step=TOKENS_PER_STEP)
    serve()
    served = serve()
    ours = served.output_tokens / served.seconds
    theirs, refused = rivals.best_effort(rival, texts, output_tokens=output_tokens)
    return {
        "ours_tokens_per_second": ours,
        "transformers_tokens_per_second": theirs,
        "transformers_refused": refused,
        "ratio": ours / max(theirs.values()),
    }
