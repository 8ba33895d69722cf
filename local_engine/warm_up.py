"""Runs an engine through every shape of step before it serves, so that no answer waits for kernel compilation."""

from local_engine.engine_core import EngineCore
from local_engine.errors import StepFailed
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams


def warm_up_lengths(max_tokens: int) -> list[int]:
    """Prompts of 2, 4, 8, ... tokens, up to a whole step: kernels' tiles grow by powers of two."""
    lengths = [2**power for power in range(1, max_tokens.bit_length()) if 2**power < max_tokens]
    return [*lengths, max_tokens]


def warm_up(core: EngineCore, max_tokens: int) -> None:
    """Compute prompts of all lengths, greedily and alone, then sampled and beside an answer; raises StepFailed.

    Sampling has different kernels with a top_p and without. An answer beside a prompt is computed outside the captured
    steps. Cached blocks get salts of their own and are the first to be evicted.
    """
    for length in warm_up_lengths(max_tokens):
        _run(core, length, SamplingParams(temperature=0.0, max_tokens=2), f"warm-up-{length}")
        _run(core, 1, SamplingParams(temperature=0.0, max_tokens=3), f"beside-{length}", steps=1)
        _run(core, length, SamplingParams(temperature=1.0, top_p=0.9, max_tokens=2), f"drawn-{length}")
    _run(core, 1, SamplingParams(temperature=1.0, max_tokens=2), "drawn-uncut")


def _run(core: EngineCore, length: int, params: SamplingParams, name: str, *, steps: int | None = None) -> None:
    """Adds a prompt, and steps `steps` times, or until nothing is left."""
    core.add(Request(name, [0] * length, params, cache_salt=name))
    while core.has_work and steps != 0:
        failed = next((delta.error for delta in core.step().deltas if delta.error), None)
        if failed is not None:
            raise StepFailed(f"The engine cannot compute a prompt of {length} tokens: {failed}")
        steps = None if steps is None else steps - 1
