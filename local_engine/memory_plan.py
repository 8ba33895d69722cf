"""How many KV-cache blocks an engine gets, and whether weights and cache fit the memory at hand. Pure; no torch."""

from local_engine.config import EngineConfig, KvFormat, ModelConfig, WeightFormat
from local_engine.errors import DoesNotFit

BYTES_PER_WEIGHT: dict[WeightFormat, float] = {
    "float32": 4.0,
    "bfloat16": 2.0,
    # A scale and an offset of two bytes each for every 32 weights.
    "int8": 1.0 + 4 / 32,
    "fp8": 1.0,
    # Half a byte, and a scale and an offset of two bytes each for every 32 weights; 128 share them at best.
    "int4": 0.5 + 4 / 32,
}
BYTES_PER_KV_VALUE: dict[KvFormat, int] = {"float32": 4, "bfloat16": 2, "fp8": 1}
# What a GPU keeps for activations, captured graphs and the libraries' own needs.
GPU_RESERVED_SHARE = 0.1


def plan_blocks(
    model: ModelConfig,
    config: EngineConfig,
    context_window: int,
    available_bytes: int,
    *,
    exact_bytes_per_weight: float = BYTES_PER_WEIGHT["float32"],
) -> int:
    """KV-cache blocks: as configured; else on a GPU what its memory holds, on a CPU for every request a quarter of the
    window and for one the whole.

    `exact_bytes_per_weight` is what a weight takes that is kept without rounding. Raises DoesNotFit, with the numbers,
    when weights and KV cache exceed `available_bytes`.
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
    """Memory of the matrices in their format, and of the embedding table beside them.

    The table keeps the activations' type at most; where it is also the output head, that one is a matrix of its own
    unless the formats agree.
    """
    bytes_per_weight = exact_bytes_per_weight if weights == "float32" else BYTES_PER_WEIGHT[weights]
    if weights == "int8":
        # A file's 4 bits stay so, and nothing takes more than where it is kept to the bit.
        bytes_per_weight = min(bytes_per_weight, exact_bytes_per_weight)
    matrices = int(model.parameters * bytes_per_weight)
    if weights in ("float32", "bfloat16"):
        return matrices
    return matrices + (4 if weights == "int8" else 2) * model.vocabulary_size * model.hidden_size
