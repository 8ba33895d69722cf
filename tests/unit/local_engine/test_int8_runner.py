"""The native int8 decoder against the same arithmetic out of torch's operations, and its independence of the batch."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
import torch

from local_engine.attention.cpu import CpuAttention
from local_engine.config import ModelConfig
from local_engine.layers.int8_linear import quantise_rows
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.native.build import load_int8_decoder
from local_engine.native.int8_runner import Int8Runner, can_run
from local_engine.native.packed import pack
from local_engine.request import Request
from local_engine.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row

pytestmark = pytest.mark.skipif(
    load_int8_decoder() is None, reason="needs a C++ compiler and AVX-512 with VNNI: install g++ on such a machine"
)
PLAIN = ModelConfig(
    name="tiny",
    family="llama",
    layers=2,
    hidden_size=72,
    intermediate_size=100,
    heads=6,
    kv_heads=2,
    head_size=64,
    vocabulary_size=83,
    context_window=128,
    rope_theta=10000.0,
    norm_epsilon=1e-5,
    has_tied_embedding=True,
)
SHAPES = {
    "three heads to a key": PLAIN,
    "one head to a key": replace(PLAIN, heads=2),
    "six heads to a key": replace(PLAIN, kv_heads=1),
    "wide heads": replace(PLAIN, head_size=128, heads=4),
    "qwen2": replace(PLAIN, has_qkv_bias=True, has_tied_embedding=False),
    "qwen3": replace(PLAIN, has_qk_norm=True),
}


class RandomWeights:
    """Any tensor that is asked for, the same one each time."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        attention, keys = config.heads * config.head_size, config.kv_heads * config.head_size
        hidden, wide = config.hidden_size, config.intermediate_size
        self._shapes: dict[str, tuple[int, ...]] = {
            "embed_tokens.weight": (config.vocabulary_size, hidden),
            "lm_head.weight": (config.vocabulary_size, hidden),
            "q_proj.weight": (attention, hidden),
            "k_proj.weight": (keys, hidden),
            "v_proj.weight": (keys, hidden),
            "o_proj.weight": (hidden, attention),
            "gate_proj.weight": (wide, hidden),
            "up_proj.weight": (wide, hidden),
            "down_proj.weight": (hidden, wide),
            "q_norm.weight": (config.head_size,),
            "k_norm.weight": (config.head_size,),
        }
        if config.has_qkv_bias:
            self._shapes |= {"q_proj.bias": (attention,), "k_proj.bias": (keys,), "v_proj.bias": (keys,)}

    def _shape(self, name: str) -> tuple[int, ...] | None:
        if name.endswith(("layernorm.weight", "model.norm.weight")):
            return (self._config.hidden_size,)
        return next((shape for ending, shape in self._shapes.items() if name.endswith(ending)), None)

    def __contains__(self, name: str) -> bool:
        return self._shape(name) is not None

    def tensor(self, name: str) -> torch.Tensor:
        shape = self._shape(name)
        assert shape is not None, name
        seeded = torch.Generator().manual_seed(sum(name.encode()))
        values = torch.randn(shape, generator=seeded)
        return values * shape[-1] ** -0.5 if len(shape) > 1 else 1.0 + 0.2 * values


class Int8Reference:
    """The product that the native code computes, out of torch's integers."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._weight, self._scales = quantise_rows(weight)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        values, scales = quantise_rows(x)
        sums = (values.to(torch.int64) @ self._weight.to(torch.int64).T).float()
        out = sums * (scales[:, None] * self._scales[None])
        return out if self._bias is None else out + self._bias


def native(config: ModelConfig) -> Int8Runner:
    assert can_run(config, 16)
    return Int8Runner(config, RandomWeights(config), blocks=40, context_window=config.context_window)


def request(tokens: int, first_block: int, seed: int = 0) -> Request:
    """A prompt with blocks that go backwards, so that a mixed-up table shows."""
    ids = torch.randint(0, PLAIN.vocabulary_size, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    made = Request("r", ids, SamplingParams())
    made.block_ids = list(range(first_block + tokens // 16, first_block - 1, -1))
    return made


def row(of: Request, start: int, count: int) -> Row:
    return Row(of, start, count, drafts=0, needs_logits=start + count == of.prompt_tokens)


def logits_of(runner: Any, *rows: Row) -> torch.Tensor:
    return runner.run(Batch(rows))


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_it_computes_what_torch_computes_from_the_same_integers(config: ModelConfig) -> None:
    model = DecoderModel(
        config,
        RandomWeights(config),
        build_linear=Int8Reference,
        attention=CpuAttention(),
        context_window=config.context_window,
    )
    reference = ModelRunner(model, blocks=40, block_size=16, kv_dtype=torch.float32)
    prompt = request(75, 3)
    ours = logits_of(native(config), row(prompt, 0, 75))
    theirs = logits_of(reference, row(prompt, 0, 75))
    # Values on the edge between two integers may be rounded the other way, and in a model this narrow that shows.
    assert float((ours - theirs).abs().max()) < 0.1 * float(theirs.std())


@pytest.mark.parametrize("config", [PLAIN, SHAPES["qwen3"]], ids=["llama", "qwen3"])
def test_a_rows_bits_depend_on_its_own_tokens_alone(config: ModelConfig) -> None:
    """Whole or in pieces, alone or beside others, by one thread or two."""
    runner = native(config)
    prompt, other = request(61, 0), request(47, 20, seed=1)
    alone = logits_of(runner, row(prompt, 0, 61))
    for pieces in ([1] * 61, [17, 1, 30, 13], [60, 1]):
        ends = list(accumulate(pieces))
        drawn = [
            logits_of(runner, row(other, 0, 40), row(prompt, end - piece, piece))
            for end, piece in zip(ends, pieces, strict=True)
        ]
        assert torch.equal(drawn[-1], alone)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if before > 1 else 2)
        together = logits_of(runner, row(prompt, 0, 61), row(other, 0, 47))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together[:1], alone)
    assert torch.equal(together[1:], logits_of(runner, row(other, 0, 47)))


def test_rows_that_are_verified_give_the_logits_of_each() -> None:
    runner = native(PLAIN)
    prompt = request(40, 0)
    at_once = logits_of(runner, Row(prompt, 0, 40, drafts=3, needs_logits=True))
    assert at_once.shape == (4, PLAIN.vocabulary_size)
    assert torch.equal(at_once[-1:], logits_of(runner, row(prompt, 0, 40)))


@pytest.mark.parametrize(("block_size", "head_size"), [(32, 64), (16, 80)])
def test_other_shapes_are_left_to_torch(block_size: int, head_size: int) -> None:
    assert not can_run(replace(PLAIN, head_size=head_size), block_size)


def test_packing_keeps_every_weight() -> None:
    weight = torch.randn(19, 8)
    packed = pack(weight, None)
    quantised, _ = quantise_rows(weight)
    unpacked = packed.packed.transpose(1, 2).reshape(32, 8)[:19].to(torch.int16) - 128
    assert torch.equal(unpacked.to(torch.int8), quantised)
    assert packed.scales.shape == (32,)
