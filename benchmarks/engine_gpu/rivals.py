"""transformers on the same weights: the reference for logits, and its continuous batching to compare with."""

import dataclasses
import inspect
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
import transformers

from benchmarks.engine_gpu.device import give_memory_back
from benchmarks.engine_gpu.shapes import transformers_settings
from local_engine.config import ModelConfig

# Its defaults, and with everything it has against launch and host overhead. Without the flash-attn package both use
# SDPA for attention. Neither side keeps prefixes from one run to the next.
CONFIGURATIONS: Final[dict[str, dict[str, Any]]] = {
    "cuda graphs and asynchronous batching": {
        "use_cuda_graph": True,
        "use_async_batching": True,
        "allow_block_sharing": False,
    },
    "defaults": {"allow_block_sharing": False},
}
# Errors about what it was given.
UNWILLING: Final = ("ValueError", "TypeError", "NotImplementedError", "ImportError", "ModuleNotFoundError")
# Limits for one batch of prompts, and for the end of the generation thread.
ANSWER_SECONDS = 90.0
STOP_SECONDS = 10


def build(shape: ModelConfig, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A causal language model of this shape with transformers' own random initialisation."""
    settings = transformers_settings(shape)
    torch.manual_seed(0)
    with device, _default_type(dtype):
        model: Any = (
            transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**settings))
            if shape.family == "qwen3"
            else transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
        )
    return model.eval()


@contextmanager
def _default_type(dtype: torch.dtype) -> Generator[None]:
    """Creates weights in this type. Converting them afterwards would round the rotary frequencies, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@torch.inference_mode()
def last_logits(model: Any, prompt: Sequence[int], device: torch.device) -> torch.Tensor:
    """Logits float32 [vocabulary] after the prompt."""
    return model(torch.tensor([list(prompt)], device=device)).logits[0, -1].float()


def output_tokens_per_second(
    model: Any,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    settings: Mapping[str, Any],
    limit_seconds: Callable[[], float],
) -> float:
    """Greedy continuous batching over all prompts: the better of two runs after a warm-up, or one run if there is no
    time for another.

    Raises RuntimeError if a run takes longer than `limit_seconds` returned at its beginning.
    """
    generation = transformers.GenerationConfig(
        max_new_tokens=output_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0
    )

    def rate() -> float:
        began = time.perf_counter()
        return _answer(manager, prompts, output_tokens, limit_seconds()) / (time.perf_counter() - began)

    with _session(model, generation, settings) as manager:
        try:
            _answer(manager, prompts[:8], output_tokens, limit_seconds())
            best = rate()
            # Graphs for batches of this size are captured by now: the second run shows its full speed.
            if limit_seconds() > 2 * len(prompts) * output_tokens / best:
                best = max(best, rate())
            return best
        finally:
            _stop(manager)


def best_effort(
    model: Any,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    seconds_left: Callable[[], float],
    cache: Mapping[str, int],
) -> tuple[dict[str, float], dict[str, str]]:
    """Rates of the configurations that run here in time, and why the others do not. Raises RuntimeError if none
    does."""
    rates: dict[str, float] = {}
    refused: dict[str, str] = {}
    attention = model.config._attn_implementation

    def limit_seconds() -> float:
        return min(ANSWER_SECONDS, seconds_left())

    for name, settings in CONFIGURATIONS.items():
        try:
            rates[name] = output_tokens_per_second(model, prompts, output_tokens, {**settings, **cache}, limit_seconds)
        except Exception as error:  # noqa: BLE001 - what it cannot run must not decide the comparison
            refused[name] = f"{type(error).__name__}: {error}"
        finally:
            # A session that fails at its start leaves the model with an attention that only such sessions can use.
            model.set_attn_implementation(attention)
            # Nor does it free its cache, and the next session sizes its own by the free memory.
            give_memory_back()
        if is_generating():
            break
    if not rates:
        raise RuntimeError(f"transformers' continuous batching did not run: {refused}")
    return rates, refused


def has_broken_off(refused: Mapping[str, str]) -> bool:
    """Whether a configuration failed while it ran; one that was rejected at once leaves nothing behind."""
    return any(reason.partition(":")[0] not in UNWILLING for reason in refused.values())


def is_generating() -> bool:
    """Whether a session that should have stopped still uses the device."""
    return any("_run_generation_loop" in thread.name for thread in threading.enumerate())


def _session(model: Any, generation: Any, settings: Mapping[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(transformers.ContinuousBatchingConfig)}
    batching = transformers.ContinuousBatchingConfig(**{k: v for k, v in settings.items() if k in known})
    return model.continuous_batching_context_manager(
        generation_config=generation, continuous_batching_config=batching, block=True, timeout=STOP_SECONDS
    )


def _stop(manager: Any) -> None:
    """Stop without flushing: every answer is here or given up. Versions without a hard stop end on their own."""
    if "hard_stop" in inspect.signature(manager.stop).parameters:
        manager.stop(block=True, timeout=STOP_SECONDS, hard_stop=True)


def _answer(manager: Any, prompts: Sequence[Sequence[int]], output_tokens: int, limit_seconds: float) -> int:
    """Send all, wait for all; returns the tokens produced. Raises RuntimeError when an answer fails."""
    waiting = {f"{time.monotonic_ns()}-{index}": list(prompt) for index, prompt in enumerate(prompts)}
    for request_id, prompt in waiting.items():
        manager.add_request(prompt, request_id=request_id, max_new_tokens=output_tokens)
    produced = 0
    for result in _results(manager, set(waiting), limit_seconds):
        if result.error is not None:
            raise RuntimeError(f"transformers failed to answer: {result.error}")
        produced += len(result.generated_tokens)
    return produced


def _results(manager: Any, waiting: set[str], limit_seconds: float) -> Iterator[Any]:
    deadline = time.monotonic() + limit_seconds
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(waiting)} answers were missing after {limit_seconds:.0f} s")
        result = manager.get_result(timeout=1)
        if result is not None and result.is_finished():
            waiting.discard(result.request_id)
            yield result
        elif result is None and not manager.is_running():
            raise RuntimeError("transformers' generation thread stopped")
