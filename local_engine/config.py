"""The shape of a model, and how the engine runs it: plain values, no torch."""

from dataclasses import dataclass
from typing import Any, Final, Literal

WeightFormat = Literal["float32", "bfloat16", "int8", "fp8", "int4"]
KvFormat = Literal["float32", "bfloat16", "fp8"]
Family = Literal[
    "llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "granite", "olmo2", "gemma3", "qwen3_moe", "mixtral"
]
NormPlace = Literal["before", "behind", "both"]
Activation = Literal["silu", "gelu"]
# Formats narrower than 16 bits in which a file may store its matrices.
StoredFormat = Literal["int4", "int8", "fp8"]
CPU_WEIGHTS: tuple[WeightFormat, ...] = ("float32", "int8")
GPU_WEIGHTS: tuple[WeightFormat, ...] = ("bfloat16", "fp8", "int4", "float32")
MOST_LAYERS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Long-context scaling of rotary frequencies.

    `linear` divides positions, `llama3` blends by wavelength, `yarn` by rotations within the original window, and then
    scales attention (`attention_factor`, None for its formula). `divisors` lists a divisor per frequency. `longrope`
    has one list for engines limited to the original window and one for longer windows, and scales attention too.
    """

    kind: Literal["linear", "llama3", "yarn", "divisors", "longrope"]
    factor: float = 1.0
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context_window: int = 8192
    fast_rotations: float = 32.0
    slow_rotations: float = 1.0
    attention_factor: float | None = None
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()


def extended_window(window: int, scaling: RopeScaling | None) -> int:
    """The context window of a model whose file says `window`: with yarn some files give the one before scaling."""
    if scaling is None or scaling.kind != "yarn":
        return window
    return max(window, int(scaling.original_context_window * scaling.factor))


def layer_count(value: Any) -> int:
    """The number of layers; ValueError above what any model has, as lists of layers would fill the memory."""
    if (layers := int(value)) > MOST_LAYERS:
        raise ValueError(f"{layers} layers")
    return layers


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """A feed-forward part of many matrices, of which a router selects a few for each token."""

    count: int
    used: int
    size: int
    # Whether the selected experts' weights are normalised to add up to one.
    shares_add_up: bool = True
    # Layers with a plain feed-forward part instead of experts.
    dense_layers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shape of a decoder-only transformer: Llama's, with each difference of other families as a value."""

    name: str
    family: Family
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
    # Tokens visible to a token, itself included, in layers not listed below; 0: all before it.
    sliding_window: int = 0
    # Layers that see everything, and the rotary base of the other layers, which then is not scaled; 0: the same base.
    full_layers: frozenset[int] = frozenset()
    local_rope_theta: float = 0.0
    # Layers whose queries and keys are not rotated; and how much of a head is rotated elsewhere (0: all).
    unrotated_layers: frozenset[int] = frozenset()
    rotary_size: int = 0
    # Multiplier of attention scores; 0: 1/sqrt(head_size).
    attention_scale: float = 0.0
    embedding_scale: float = 1.0
    logit_scale: float = 1.0
    # Position of norms: before attention and the feed-forward part, after them, or both.
    norm_place: NormPlace = "before"
    # Whether one norm spans the queries of all heads, and one their keys.
    has_wide_qk_norm: bool = False
    activation: Activation = "silu"
    experts: ExpertShape | None = None

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """Bytes per cached token over all layers, keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_size * bytes_per_value

    @property
    def default_context_window(self) -> int:
        """The default context window. With longrope it is the original one: a longer one changes all answers."""
        scaling = self.rope_scaling
        if scaling is None or scaling.kind != "longrope":
            return self.context_window
        return min(self.context_window, scaling.original_context_window)

    @property
    def parameters(self) -> int:
        """Number of weights in the matrices; a tied embedding counts once."""
        return self._parameters(0 if self.experts is None else self.experts.count)

    @property
    def active_parameters(self) -> int:
        """Weights used for a single token."""
        return self._parameters(0 if self.experts is None else self.experts.used)

    def experts_of(self, layer: int) -> ExpertShape | None:
        """The layer's experts, if it has any."""
        return None if self.experts is None or layer in self.experts.dense_layers else self.experts

    def _parameters(self, experts: int) -> int:
        attention = self.hidden_size * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        embedding = self.vocabulary_size * self.hidden_size * (1 if self.has_tied_embedding else 2)
        return self.layers * attention + embedding + self._feed_forward(experts)

    def _feed_forward(self, experts: int) -> int:
        dense = 3 * self.hidden_size * self.intermediate_size
        if self.experts is None:
            return self.layers * dense
        few = len(self.experts.dense_layers)
        sparse = self.hidden_size * (self.experts.count + 3 * self.experts.size * experts)
        return few * dense + (self.layers - few) * sparse


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
