"""Builds the GPU's model and runner; import only after a CUDA device has been chosen."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from local_engine.attention.triton_attention import TritonAttention
from local_engine.config import EngineConfig, KvFormat, ModelConfig, WeightFormat
from local_engine.kernels.fused_decoder import FusedDecoder
from local_engine.kernels.gpu_runner import WAYS, GpuRunner, OneRow
from local_engine.kernels.linear import build_fp8_linear, build_int4_linear, stored_int4_linear
from local_engine.layers.linear import DenseLinear, LinearBuilder, StoredLinears
from local_engine.loading.weights import NibbleBlocks, WeightSource, no_nibbles

# A split count suitable for one sequence on a large GPU, used when a row's bits must not depend on its batch.
DETERMINISTIC_SPLITS = 8
BUILDERS: dict[WeightFormat, LinearBuilder] = {
    "float32": DenseLinear,
    "bfloat16": DenseLinear,
    "fp8": build_fp8_linear,
    "int4": build_int4_linear,
}
KV_TYPES: dict[KvFormat, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """The part of the engine's configuration for a GPU. `kv_dtype` may be torch.float8_e4m3fn.

    `one_row` are the variants of a step of one row to compare; without a choice the separate kernels are used.
    """

    weights: WeightFormat = "bfloat16"
    kv_dtype: torch.dtype = torch.bfloat16
    blocks: int = 1024
    block_size: int = 16
    context_window: int = 8192
    max_rows: int = 256
    is_deterministic: bool = False
    one_row: tuple[OneRow, ...] = WAYS


def gpu_plan(config: EngineConfig, blocks: int, context_window: int) -> GpuPlan:
    """The part of the engine's configuration that the device needs."""
    return GpuPlan(
        weights=config.weights,
        kv_dtype=KV_TYPES[config.kv_format],
        blocks=blocks,
        block_size=config.block_size,
        context_window=context_window,
        max_rows=config.max_running_requests,
        is_deterministic=config.is_deterministic,
    )


def build_gpu_runner(
    config: ModelConfig,
    weights: WeightSource,
    plan: GpuPlan,
    device: torch.device,
    progress: Callable[[int, int], None] | None = None,
    *,
    nibbles: Callable[[str], NibbleBlocks | None] = no_nibbles,
) -> GpuRunner:
    """Load the model onto `device`; raises KeyError for a weight format without a GPU product.

    With int4 weights, matrices from `nibbles` are used as stored, others are rounded. Deterministic mode fixes the
    splits of attention and computes rows one by one, as the library for dense products chooses its algorithm by their
    number.
    """
    model = FusedDecoder(
        config,
        weights,
        build_linear=BUILDERS[plan.weights],
        attention=TritonAttention(
            window=config.sliding_window,
            scale=config.attention_scale,
            splits=DETERMINISTIC_SPLITS if plan.is_deterministic else None,
        ),
        context_window=plan.context_window,
        dtype=torch.float32 if plan.weights == "float32" else torch.bfloat16,
        device=device,
        progress=progress,
        stored=StoredLinears(nibbles, stored_int4_linear) if plan.weights == "int4" else None,
    )
    runner = GpuRunner(
        model,
        blocks=plan.blocks,
        block_size=plan.block_size,
        kv_dtype=plan.kv_dtype,
        context_window=plan.context_window,
        max_rows=plan.max_rows,
        is_deterministic=plan.is_deterministic,
    )
    if not plan.is_deterministic:
        runner.choose_one_row(plan.one_row)
    return runner
