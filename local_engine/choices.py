"""Decides what the command line leaves open, from the model, its file, the device and its memory. Pure; no torch."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from local_engine.config import EngineConfig, KvFormat, ModelConfig, StoredFormat, WeightFormat
from local_engine.memory_plan import BYTES_PER_KV_VALUE, GPU_RESERVED_SHARE, weight_bytes

# Initial guess of the cached tokens per answer with its prompt; the queue absorbs the rest.
GUESSED_TOKENS: Final = 1024
GPU_CONCURRENCY: Final = range(8, 257)
# A GPU this large is fast enough that a step with this many prompt tokens hardly delays concurrent answers.
LARGE_GPU_BYTES: Final = 60 * 10**9
LARGE_STEP, GPU_STEP = 8192, 2048


@dataclass(frozen=True, slots=True)
class Wishes:
    """The user's settings for the choices below; None and `auto` leave them to the engine."""

    weights: WeightFormat | Literal["auto"] | None = None
    kv_format: KvFormat | None = None
    max_running_requests: int | None = None
    max_tokens_per_step: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """The device: its free memory, and which narrow formats pay off on it."""

    is_gpu: bool
    free_bytes: int
    has_fp8: bool = False
    has_native_decoder: bool = False


def decide(
    config: EngineConfig, wishes: Wishes, model: ModelConfig, stored: StoredFormat | None, machine: Machine
) -> EngineConfig:
    """The configuration with every open choice made; `stored` is the narrow format of the file's matrices."""
    plain: Literal["float32", "bfloat16"] = "bfloat16" if machine.is_gpu else "float32"
    weights = choose_weights(stored, machine) if wishes.weights == "auto" else wishes.weights or plain
    kv_format = wishes.kv_format or ("float32" if weights == "float32" else plain)
    decided = replace(config, weights=weights, kv_format=kv_format)
    return replace(
        decided,
        max_running_requests=wishes.max_running_requests or choose_concurrency(decided, model, machine),
        max_tokens_per_step=wishes.max_tokens_per_step or choose_step_tokens(config, machine),
    )


def choose_weights(stored: StoredFormat | None, machine: Machine) -> WeightFormat:
    """On a CPU int8 if the native decoder runs (it keeps 4- and 8-bit weights as stored), else float32; on a GPU the
    file's int4 or e4m3, else bfloat16."""
    if not machine.is_gpu:
        return "int8" if machine.has_native_decoder else "float32"
    if stored == "int4" or (stored == "fp8" and machine.has_fp8):
        return stored
    return "bfloat16"


def choose_concurrency(config: EngineConfig, model: ModelConfig, machine: Machine) -> int:
    """On a GPU the estimated number of answers that its cache can hold, within bounds; on a CPU the value measured to
    pay off."""
    if not machine.is_gpu:
        return config.max_running_requests
    usable = machine.free_bytes * (1 - GPU_RESERVED_SHARE) - weight_bytes(model, config.weights)
    held = int(usable // model.kv_bytes_per_token(BYTES_PER_KV_VALUE[config.kv_format])) // GUESSED_TOKENS
    return min(max(held, GPU_CONCURRENCY[0]), GPU_CONCURRENCY[-1])


def choose_step_tokens(config: EngineConfig, machine: Machine) -> int:
    """Enough prompt tokens that a large product fills the device."""
    if not machine.is_gpu:
        return config.max_tokens_per_step
    return LARGE_STEP if machine.free_bytes >= LARGE_GPU_BYTES else GPU_STEP


def sentence(config: EngineConfig) -> str:
    """The decisions, for whoever starts the engine."""
    return (
        f"{config.weights} weights and a {config.kv_format} KV cache on {config.device}; "
        f"{config.max_running_requests} answers at once, {config.max_tokens_per_step} tokens a step"
    )
