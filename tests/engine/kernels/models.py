"""Tiny models with random weights, and scheduled batches over them."""

import torch

from local_engine.config import ExpertShape, ModelConfig
from local_engine.loading.weights import WeightSource
from local_engine.model import NORM_NAMES
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row


class RandomWeights:
    """A WeightSource that draws each tensor on demand, always the same one for a name."""

    def __init__(self, config: ModelConfig) -> None:
        self.shapes = weight_shapes(config)

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def tensor(self, name: str) -> torch.Tensor:
        shape = self.shapes[name]
        generator = torch.Generator().manual_seed(sum(name.encode()) * 31 + len(name))
        values = torch.randn(shape, generator=generator)
        return values * 0.2 + 1 if len(shape) == 1 and "bias" not in name else values * shape[-1] ** -0.5


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    q_rows, kv_rows = config.heads * config.head_size, config.kv_heads * config.head_size
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocabulary_size, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (config.vocabulary_size, hidden),
    }
    for index in range(config.layers):
        at = f"model.layers.{index}."
        shapes |= {f"{at}{name}.weight": (hidden,) for name in NORM_NAMES[config.norm_place] if name is not None}
        shapes[f"{at}self_attn.o_proj.weight"] = (hidden, q_rows)
        shapes |= _feed_forward(f"{at}mlp.", config, config.experts_of(index))
        for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (rows, hidden)
            if config.has_qkv_bias:
                shapes[f"{at}self_attn.{name}_proj.bias"] = (rows,)
        if config.has_qk_norm:
            is_wide = config.has_wide_qk_norm
            shapes[f"{at}self_attn.q_norm.weight"] = (q_rows if is_wide else config.head_size,)
            shapes[f"{at}self_attn.k_norm.weight"] = (kv_rows if is_wide else config.head_size,)
    return shapes


def _feed_forward(prefix: str, config: ModelConfig, experts: ExpertShape | None) -> dict[str, tuple[int, ...]]:
    def gated(at: str, size: int) -> dict[str, tuple[int, ...]]:
        wide = (size, config.hidden_size)
        return {f"{at}gate_proj.weight": wide, f"{at}up_proj.weight": wide, f"{at}down_proj.weight": wide[::-1]}

    if experts is None:
        return gated(prefix, config.intermediate_size)
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}gate.weight": (experts.count, config.hidden_size)}
    for number in range(experts.count):
        shapes |= gated(f"{prefix}experts.{number}.", experts.size)
    return shapes


def make_config(*, has_qkv_bias: bool = False, has_qk_norm: bool = False) -> ModelConfig:
    return ModelConfig(
        name="tiny",
        family="qwen3" if has_qk_norm else "llama",
        layers=2,
        hidden_size=96,
        intermediate_size=160,
        heads=4,
        kv_heads=2,
        head_size=32,
        vocabulary_size=200,
        context_window=128,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        has_qkv_bias=has_qkv_bias,
        has_qk_norm=has_qk_norm,
    )


def make_weights(config: ModelConfig) -> WeightSource:
    return RandomWeights(config)


def make_request(name: str, tokens: list[int], block_ids: list[int], params: SamplingParams | None = None) -> Request:
    request = Request(name, tokens, params or SamplingParams(temperature=0.0))
    request.block_ids = block_ids
    return request


def make_batch(*rows: tuple[Request, int]) -> Batch:
    """A batch with each request's tokens from `start` to its last."""
    return Batch(
        tuple(
            Row(request=request, start=start, count=len(request.token_ids) - start, drafts=0, needs_logits=True)
            for request, start in rows
        )
    )
