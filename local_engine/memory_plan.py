"""How many KV-cache blocks an engine gets, and whether weights and cache fit the available memory. Pure; no torch."""

from local_engine.config import EngineConfig, KvFormat, ModelConfig, WeightFormat
from local_engine.errors import DoesNotFit

BYTES_PER_WEIGHT: dict[WeightFormat, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    # A scale and an offset of two bytes each per 32 weights.
    "int8": 1.0 + 4 / 32,
    "fp8": 1.0,
    # Half a byte, plus a scale and an offset of two bytes each per 32 weights; up to 128 weights may share them.
    "int4": 0.5 + 4 / 32,
}
BYTES_PER_KV_VALUE: dict[KvFormat, int] = {"float32": 4, "bfloat16": 2, "fp8": 1}
# Share of a GPU's memory for activations, captured graphs and libraries.
GPU_RESERVED_SHARE = 0.1


def plan_blocks(
    model: ModelConfig,
    config: EngineConfig,
    context_window: int,
    available_bytes: int,
    *,
    exact_bytes_per_weight: float = BYTES_PER_WEIGHT["float32"],
) -> int:
    """KV-cache blocks: as configured; by default on a GPU what its memory holds, on a CPU a quarter of the window per
    request and at least one whole window.

    `exact_bytes_per_weight` is the size of a weight stored without rounding. Raises DoesNotFit, with the numbers, if
    weights and KV cache exceed `available_bytes`.
    """
    block_bytes = config.block_size * model.kv_bytes_per_token(BYTES_PER_KV_VALUE[config.kv_format])
    weights = weight_bytes(model, config.weights, exact_bytes_per_weight)
    is_gpu = config.device != "cpu"
    usable = int(available_bytes * (1 - GPU_RESERVED_SHARE)) if is_gpu else available_bytes
    least = -(-context_window // config.block_size)
    if config.kv_blocks is not None:
        blocks = config.kv_blocks
    elif is_gpu:
        wanted = config.max_running_requests * least
        blocks = max(least, min(wanted, (usable - weights) // block_bytes))
    else:
        tokens = max(context_window, config.max_running_requests * context_window // 4)
        blocks = -(-tokens // config.block_size)
    if weights + blocks * block_bytes > usable:
        raise DoesNotFit(
            f"{model.name} needs {weights / 1e9:.2f} GB for weights and {blocks * block_bytes / 1e9:.2f} GB for "
            f"{blocks} KV-cache blocks of {config.block_size} tokens; {usable / 1e9:.2f} GB are available. "
            "Give it a smaller --context-window, fewer --kv-blocks or a smaller weight format."
        )
    return blocks


def weight_bytes(
    model: ModelConfig, weights: WeightFormat, exact_bytes_per_weight: float = BYTES_PER_WEIGHT["float32"]
) -> int:
    """Memory of the matrices in their format, and of the embedding table.

    The table keeps the type of activations; if it is also the output head, the head is a separate matrix unless the
    formats agree.
    """
    bytes_per_weight = exact_bytes_per_weight if weights == "float32" else BYTES_PER_WEIGHT[weights]
    if weights == "int8":
        # 4-bit weights stay 4-bit, and nothing takes more than in its exact form.
        bytes_per_weight = min(bytes_per_weight, exact_bytes_per_weight)
    matrices = int(model.parameters * bytes_per_weight)
    if weights in ("float32", "bfloat16"):
        return matrices
    return matrices + (4 if weights == "int8" else 2) * model.vocabulary_size * model.hidden_size
