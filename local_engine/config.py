"""What a model is made of and how the engine runs it: plain values, no torch."""

from dataclasses import dataclass
from typing import Literal

WeightFormat = Literal["float32", "bfloat16", "int8", "fp8", "int4"]
KvFormat = Literal["float32", "bfloat16", "fp8"]
# What a file may hold its matrices in, of what is narrower than 16 bits.
StoredFormat = Literal["int4", "int8", "fp8"]
CPU_WEIGHTS: tuple[WeightFormat, ...] = ("float32", "int8")
GPU_WEIGHTS: tuple[WeightFormat, ...] = ("bfloat16", "fp8", "int4", "float32")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Long-context scaling of rotary frequencies.

    `linear` divides positions, `llama3` blends by wavelength, `yarn` by rotations within the original window, and then
    weighs attention (`attention_factor`, None for its rule); `divisors` names each frequency's own divisor.
    """

    kind: Literal["linear", "llama3", "yarn", "divisors"]
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context_window: int = 8192
    fast_rotations: float = 32.0
    slow_rotations: float = 1.0
    attention_factor: float | None = None
    divisors: tuple[float, ...] = ()


def extended_window(window: int, scaling: RopeScaling | None) -> int:
    """The context window of a model that says `window`: with yarn, files name the one before or after scaling."""
    if scaling is None or scaling.kind != "yarn":
        return window
    return max(window, int(scaling.original_context_window * scaling.factor))


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a decoder-only transformer of the Llama, Mistral, Qwen2, Qwen3 or SmolLM families."""

    name: str
    family: Literal["llama", "mistral", "qwen2", "qwen3"]
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary_size: int
    context_window: int
    rope_theta: float
    norm_epsilon: float
    rope_scaling: RopeScaling | None = None
    has_qkv_bias: bool = False
    has_qk_norm: bool = False
    has_tied_embedding: bool = False
    # Tokens that a token sees, itself included, in every layer; 0: all before it.
    sliding_window: int = 0

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Memory that one cached token takes over all layers, keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_size * bytes_per_value

    @property
    def parameters(self) -> int:
        """Weights in the matrices, the embedding counted once when it is tied."""
        attention = self.hidden_size * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        feed_forward = 3 * self.hidden_size * self.intermediate_size
        embedding = self.vocabulary_size * self.hidden_size * (1 if self.has_tied_embedding else 2)
        return self.layers * (attention + feed_forward) + embedding


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine runs: sizes in tokens, blocks and requests; time in seconds."""

    block_size: int = 16
    kv_blocks: int | None = None
    max_running_requests: int = 8
    max_waiting_requests: int = 64
    max_tokens_per_step: int = 512
    context_window: int | None = None
    weights: WeightFormat = "float32"
    kv_format: KvFormat = "float32"
    device: str = "cpu"
    threads: int | None = None
    has_prefix_cache: bool = True
    is_deterministic: bool = False
    speculative_tokens: int = 0
    stall_seconds: float = 60.0
