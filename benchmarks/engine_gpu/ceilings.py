"""A device's limits by the roofline model: the longer of the times to move the bytes and to do the arithmetic. Pure."""

from dataclasses import dataclass
from typing import Final

from local_engine.config import ModelConfig

BYTES_PER_WEIGHT: Final = {"bfloat16": 2.0, "fp8": 1.0, "int4": 0.5 + 4 / 128}
# Dense e4m3 products run at twice the bfloat16 rate on Hopper; four-bit weights are multiplied as bfloat16.
MATRIX_SPEED: Final = {"bfloat16": 1.0, "fp8": 2.0, "int4": 1.0}


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Measured: bytes read plus bytes written of a large copy, per second; bfloat16 operations of a large product."""

    copy_bytes_per_second: float
    bf16_flops_per_second: float


def matrix_weights(shape: ModelConfig, experts: float | None = None) -> float:
    """Weights that a token is multiplied by: all matrices of the layers, without the output head. Of a layer's experts,
    those that one token uses, or `experts` of them."""
    attention = shape.hidden_size * shape.head_size * (2 * shape.heads + 2 * shape.kv_heads)
    gated = 3 * shape.hidden_size
    if shape.experts is None:
        return shape.layers * (attention + gated * shape.intermediate_size)
    counted = shape.experts.used if experts is None else experts
    few = len(shape.experts.dense_layers)
    sparse = gated * shape.experts.size * counted + shape.hidden_size * shape.experts.count
    return shape.layers * attention + few * gated * shape.intermediate_size + (shape.layers - few) * sparse


def expected_experts(shape: ModelConfig, batch: int) -> float | None:
    """Mean number of a layer's experts that `batch` tokens use, if all experts are equally likely. No router makes a
    step read more; one that prefers some experts reads fewer, and has a higher ceiling."""
    experts = shape.experts
    return None if experts is None else experts.count * (1 - (1 - experts.used / experts.count) ** batch)


def head_weights(shape: ModelConfig) -> int:
    return shape.vocabulary_size * shape.hidden_size


def attention_flops(shape: ModelConfig, keys: float) -> float:
    """Operations of one query token against `keys` cached tokens, over all layers."""
    return 4.0 * shape.layers * shape.heads * shape.head_size * keys


def decode_tokens_per_second(
    shape: ModelConfig, rates: DeviceRates, *, batch: int, context: int, weights: str = "bfloat16", kv_bytes: int = 2
) -> float:
    """Ceiling of a decode step with `batch` sequences of `context` cached tokens each. Weights are read once for all of
    them, and only of the experts that the batch is expected to use."""
    read = matrix_weights(shape, expected_experts(shape, batch)) + head_weights(shape)
    moved = read * BYTES_PER_WEIGHT[weights] + batch * context * shape.kv_bytes_per_token(kv_bytes)
    products = 2.0 * batch * (matrix_weights(shape) + head_weights(shape)) / MATRIX_SPEED[weights]
    arithmetic = products + batch * attention_flops(shape, context)
    step_seconds = max(moved / rates.copy_bytes_per_second, arithmetic / rates.bf16_flops_per_second)
    return batch / step_seconds


def prefill_tokens_per_second(
    shape: ModelConfig, rates: DeviceRates, *, prompt: int, weights: str = "bfloat16"
) -> float:
    """Ceiling for prompts of `prompt` tokens: arithmetic only; the head runs once per prompt and is left out."""
    per_token = 2.0 * matrix_weights(shape) / MATRIX_SPEED[weights] + attention_flops(shape, prompt / 2)
    return rates.bf16_flops_per_second / per_token
