"""The native decoder compared with the same arithmetic in torch, and its independence of the batch."""

import ctypes
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, cast

import pytest
import torch

from local_engine.assembly import build_cpu_runner
from local_engine.attention.cpu import CpuAttention
from local_engine.config import EngineConfig, ExpertShape, ModelConfig, RopeScaling
from local_engine.errors import ModelUnsupported
from local_engine.layers.linear import DenseLinear, Linear, LinearBuilder
from local_engine.loading.weights import BLOCK, LoadedFile, NibbleBlocks, ScaledBlocks, no_blocks
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.native.build import compile_decoder, runnable_sets
from local_engine.native.native_decoder import NativeDecoder, can_run, why_not
from local_engine.native.native_runner import NativeRunner
from local_engine.native.packed import pack_bytes, pack_float, pack_nibbles
from local_engine.request import Request
from local_engine.sampling.sampling_params import SamplingParams
from local_engine.scheduler import Batch, Row
from local_engine.steps import Runner
from tests.engine.kernels.models import RandomWeights as SeededWeights
from tests.unit.local_engine.instructions import PLAIN_VECTORS, compiled_as
from tests.unit.local_engine.rounding import quantise_blocks

pytestmark = pytest.mark.usefixtures("decoder")
in_every_way = compiled_as(*runnable_sets())
PLAIN = ModelConfig(
    name="tiny",
    family="llama",
    layers=2,
    hidden_size=96,
    intermediate_size=160,
    heads=6,
    kv_heads=2,
    head_size=64,
    vocabulary_size=83,
    context_window=128,
    rope_theta=10000.0,
    norm_epsilon=1e-5,
    has_tied_embedding=True,
)
LINEAR = RopeScaling(kind="linear", factor=4.0)
EMBEDDING = "model.embed_tokens.weight"
SHAPES = {
    "three heads to a key": PLAIN,
    "one head to a key": replace(PLAIN, heads=2),
    "six heads to a key": replace(PLAIN, kv_heads=1),
    "wide heads": replace(PLAIN, head_size=128, heads=4),
    "qwen2": replace(PLAIN, has_qkv_bias=True, has_tied_embedding=False),
    "qwen3": replace(PLAIN, has_qk_norm=True),
    "a window within a block": replace(PLAIN, sliding_window=11),
    "a window of several blocks": replace(PLAIN, sliding_window=37),
    "a window as wide as the prompt": replace(PLAIN, sliding_window=75),
    "a layer without rotation, scales": replace(
        PLAIN, unrotated_layers=frozenset({1}), attention_scale=0.3, embedding_scale=3.0
    ),
    "a part of each head rotated": replace(PLAIN, rotary_size=48),
    "norms behind, and over all heads": replace(PLAIN, norm_place="behind", has_qk_norm=True, has_wide_qk_norm=True),
    "gemma3": replace(PLAIN, norm_place="both", has_qk_norm=True, activation="gelu", head_size=256, heads=2),
    "experts": replace(PLAIN, experts=ExpertShape(5, 2, 64)),
    "experts in some layers": replace(
        PLAIN, experts=ExpertShape(18, 4, 32, shares_add_up=False, dense_layers=frozenset({0}))
    ),
    "a layer without a window": replace(
        PLAIN, sliding_window=11, full_layers=frozenset({1}), local_rope_theta=100.0, rope_scaling=LINEAR
    ),
}


class RandomWeights(SeededWeights):
    """Norms and biases around 1, matrices scaled by their width."""

    def tensor(self, name: str) -> torch.Tensor:
        shape = self.shapes[name]
        seeded = torch.Generator().manual_seed(sum(name.encode()))
        values = torch.randn(shape, generator=seeded)
        return values * shape[-1] ** -0.5 if len(shape) > 1 else 1.0 + 0.2 * values


class NibbleWeights(RandomWeights):
    """The same, but matrices other than the embedding have 16 levels per block."""

    def nibbles(self, name: str) -> NibbleBlocks | None:
        return None if name == EMBEDDING or "norm" in name else rounded_to_nibbles(super().tensor(name))

    def tensor(self, name: str) -> torch.Tensor:
        is_matrix = name.endswith(".weight") and "norm" not in name and name != EMBEDDING
        whole = super().tensor(name)
        return unrounded(rounded_to_nibbles(whole)) if is_matrix else whole


def rounded_to_nibbles(weight: torch.Tensor) -> NibbleBlocks:
    blocks = weight.unflatten(1, (-1, BLOCK))
    offsets = blocks.amin(-1).half().float()
    scales = ((blocks.amax(-1) - offsets) / 15).half().float()
    values = ((blocks - offsets[..., None]) / scales[..., None]).round().clamp(0, 15).to(torch.uint8)
    return NibbleBlocks(values.flatten(1), scales, offsets)


def unrounded(weight: NibbleBlocks) -> torch.Tensor:
    blocks = weight.values.unflatten(1, (-1, BLOCK)).float()
    return (blocks * weight.scales[..., None] + weight.offsets[..., None]).flatten(1)


class BlockWeights(NibbleWeights):
    """The same nibbles, provided for float32 products, along with 8-bit values and, last, bfloat16."""

    def blocks(self, name: str) -> ScaledBlocks | None:
        held = None if name.endswith((".bias", "down_proj.weight")) else self.nibbles(name)
        if held is None:
            return None
        whole = ScaledBlocks(held.values, held.scales, held.offsets, bits=4)
        parts = (part.repeat_interleave(2, dim=1) for part in (held.scales, held.offsets))
        return ScaledBlocks(held.values, *parts, bits=8) if name.endswith("v_proj.weight") else whole

    def tensor(self, name: str) -> torch.Tensor:
        held = self.blocks(name)
        if held is None:
            return super().tensor(name).bfloat16().float()
        scales, offsets = (part.double().repeat_interleave(held.block, 1) for part in (held.scales, held.offsets))
        return (held.values * scales + offsets).float()


Mode = Literal["float32", "int8", "nibbles"]
MODES: tuple[Mode, ...] = ("float32", "int8", "nibbles")


def loaded_file(config: ModelConfig, mode: Mode) -> LoadedFile:
    tokenizer = cast("Any", None)
    if mode != "nibbles":
        return LoadedFile(config, RandomWeights(config), tokenizer)
    weights = NibbleWeights(config)
    return LoadedFile(config, weights, tokenizer, weights.nibbles)


def native(config: ModelConfig, mode: Mode = "int8", library: ctypes.CDLL | None = None) -> NativeRunner:
    assert can_run(config, 16)
    decoder = NativeDecoder(
        loaded_file(config, mode),
        "float32" if mode == "float32" else "int8",
        context_window=config.context_window,
    )
    return NativeRunner(decoder, blocks=40, library=library)


class RoundedProduct:
    """The native product in double precision: activations rounded by blocks, and weights too unless they are
    nibbles."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, *, rounds_weights: bool) -> None:
        self._weight = (rounded_to_bytes(weight) if rounds_weights else weight).double()
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        blocks = x.unflatten(1, (-1, BLOCK))
        scales = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127.0
        taken = ((blocks / scales).round() * scales).flatten(1)
        out = (taken.double() @ self._weight.T).float()
        return out if self._bias is None else out + self._bias


def rounded_to_bytes(weight: torch.Tensor) -> torch.Tensor:
    values, scales = quantise_blocks(weight)
    return (values.unflatten(1, (-1, BLOCK)).float() * scales[..., None]).flatten(1)


def in_torch(config: ModelConfig, mode: Mode) -> ModelRunner:
    def rounded(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
        if config.experts is not None and len(weight) == config.experts.count:
            return DenseLinear(weight, bias)
        # The embedding does not consist of nibbles: as the output head it is rounded to bytes.
        return RoundedProduct(weight, bias, rounds_weights=mode == "int8" or len(weight) == config.vocabulary_size)

    build: LinearBuilder = DenseLinear if mode == "float32" else rounded
    model = DecoderModel(
        config,
        loaded_file(config, mode).weights,
        build_linear=build,
        attention=CpuAttention(window=config.sliding_window, scale=config.attention_scale),
        context_window=config.context_window,
    )
    return ModelRunner(model, blocks=40, block_size=16, kv_dtype=torch.float32)


def request(tokens: int, first_block: int, seed: int = 0) -> Request:
    """A prompt with blocks in reverse order, so that a wrong block table is noticed."""
    ids = torch.randint(0, PLAIN.vocabulary_size, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()
    made = Request("r", ids, SamplingParams())
    made.block_ids = list(range(first_block + tokens // 16, first_block - 1, -1))
    return made


def row(of: Request, start: int, count: int) -> Row:
    return Row(of, start, count, drafts=0, needs_logits=start + count == of.prompt_tokens)


def logits_of(runner: Runner, *rows: Row) -> torch.Tensor:
    return runner.run(Batch(rows))


@in_every_way
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_it_computes_what_torch_computes_from_the_same_weights(
    config: ModelConfig, mode: Mode, library: ctypes.CDLL
) -> None:
    prompt = request(75, 3)
    ours = logits_of(native(config, mode, library), row(prompt, 0, 75))
    theirs = logits_of(in_torch(config, mode), row(prompt, 0, 75))
    # Values halfway between two integers may be rounded the other way, which matters in a model this narrow.
    tolerance = 1e-4 if mode == "float32" else 0.1
    assert float((ours - theirs).abs().max()) < tolerance * float(theirs.std())


@compiled_as(PLAIN_VECTORS)
@pytest.mark.parametrize("mode", MODES)
def test_so_do_plain_vectors(mode: Mode, library: ctypes.CDLL) -> None:
    windowed = replace(SHAPES["gemma3"], sliding_window=37)
    test_it_computes_what_torch_computes_from_the_same_weights(windowed, mode, library)


@in_every_way
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "config",
    [PLAIN, SHAPES["qwen3"], replace(PLAIN, sliding_window=21), SHAPES["gemma3"], SHAPES["experts"]],
    ids=["llama", "qwen3", "window", "gemma3", "experts"],
)
def test_a_rows_bits_depend_on_its_own_tokens_alone(config: ModelConfig, mode: Mode, library: ctypes.CDLL) -> None:
    """At once or in chunks, alone or with others, with one thread or two."""
    runner = native(config, mode, library)
    prompt, other = request(61, 0), request(47, 20, seed=1)
    alone = logits_of(runner, row(prompt, 0, 61))
    for pieces in ([1] * 61, [17, 1, 30, 13], [60, 1]):
        ends = list(accumulate(pieces))
        drawn = [
            logits_of(runner, row(other, 0, 40), row(prompt, end - piece, piece))
            for end, piece in zip(ends, pieces, strict=True)
        ]
        assert torch.equal(drawn[-1], alone)
    for few in (1, 21):  # experts of up to 64 rows in all are computed together
        assert torch.equal(logits_of(runner, row(prompt, 61 - few, few)), alone)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if before > 1 else 2)
        together = logits_of(runner, row(prompt, 0, 61), row(other, 0, 47))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together[:1], alone)
    assert torch.equal(together[1:], logits_of(runner, row(other, 0, 47)))


@in_every_way
def test_rows_that_are_no_numbers_take_every_expert_once_at_most(library: ctypes.CDLL) -> None:
    """More rows of one expert than a step has would be written beyond the allocated memory."""
    config = SHAPES["experts"]

    class Broken(RandomWeights):
        def tensor(self, name: str) -> torch.Tensor:
            return super().tensor(name) * (float("nan") if name.endswith("mlp.gate.weight") else 1.0)

    loaded = LoadedFile(config, Broken(config), cast("Any", None))
    decoder = NativeDecoder(loaded, "int8", context_window=config.context_window)
    runner = NativeRunner(decoder, blocks=40, library=library)
    assert logits_of(runner, row(request(75, 3), 0, 75)).isnan().all()


@pytest.mark.parametrize("config", [PLAIN, SHAPES["qwen2"]], ids=["tied", "untied"])
def test_how_weights_are_kept_changes_no_bit_of_float32(config: ModelConfig) -> None:
    weights = BlockWeights(config)
    loaded = LoadedFile(config, weights, cast("Any", None), blocks=weights.blocks)
    kept, whole = (
        NativeRunner(NativeDecoder(file, "float32", context_window=config.context_window), blocks=40)
        for file in (loaded, replace(loaded, blocks=no_blocks))
    )
    prompt, other = request(61, 0), request(47, 20, seed=1)
    for rows in ([row(prompt, 0, 61)], [row(prompt, 0, 60)], [row(prompt, 60, 1), row(other, 0, 47)]):
        assert torch.equal(logits_of(kept, *rows), logits_of(whole, *rows))


def test_rows_that_are_verified_give_the_logits_of_each() -> None:
    runner = native(PLAIN)
    prompt = request(40, 0)
    at_once = logits_of(runner, Row(prompt, 0, 40, drafts=3, needs_logits=True))
    assert at_once.shape == (4, PLAIN.vocabulary_size)
    assert torch.equal(at_once[-1:], logits_of(runner, row(prompt, 0, 40)))


@pytest.mark.parametrize(("block_size", "head_size"), [(32, 64), (16, 80)])
def test_other_shapes_are_left_to_torch(block_size: int, head_size: int) -> None:
    assert not can_run(replace(PLAIN, head_size=head_size), block_size)


def test_a_wrong_shape_and_a_wrong_block_size_say_so() -> None:
    assert "--block-size is not 16" in (why_not(PLAIN, 32) or "")
    assert "heads" in (why_not(replace(PLAIN, head_size=80), 16) or "")
    assert why_not(PLAIN, 16) is None


def test_int8_is_refused_where_torch_would_have_to_compute_it() -> None:
    config = EngineConfig(weights="int8", block_size=32)
    with pytest.raises(ModelUnsupported, match="int8 weights need the native decoder, and --block-size is not 16"):
        build_cpu_runner(loaded_file(PLAIN, "int8"), config, 4, 64)


def test_who_has_no_folder_to_keep_it_in_has_it_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compile_decoder(PLAIN_VECTORS) is not None


def test_packed_floats_are_the_matrix_turned() -> None:
    weight = torch.randn(19, 32)
    packed = pack_float(weight, torch.ones(19))
    assert torch.equal(packed.packed.transpose(1, 2).reshape(32, 32)[:19], weight)
    assert packed.bias is not None
    assert packed.bias.shape == (32,)


def halves(packed: torch.Tensor, start: int) -> torch.Tensor:
    """Scales or offsets [panels, blocks, bytes] reordered to [outputs, blocks]."""
    return packed[..., start : start + 32].contiguous().view(torch.float16).float().transpose(1, 2).flatten(0, 1)


def test_packed_bytes_keep_a_matrix_that_was_rounded_so_before() -> None:
    weight = rounded_to_bytes(torch.randn(19, 64))
    packed = pack_bytes(weight, None).packed
    values = packed[..., 64:].unflatten(-1, (8, 16, 4)).permute(0, 3, 1, 2, 4).reshape(32, 2, BLOCK)
    weights = values * halves(packed, 0)[..., None] + halves(packed, 32)[..., None]
    torch.testing.assert_close(weights.flatten(1)[:19], weight, rtol=0, atol=1e-6)


def test_packed_nibbles_are_the_matrix() -> None:
    blocks = rounded_to_nibbles(torch.randn(19, 64))
    packed = pack_nibbles(blocks, None).packed
    both = packed[..., 64:].unflatten(-1, (4, 16, 4))
    values = torch.cat((both & 15, both >> 4), dim=2).permute(0, 3, 1, 2, 4).reshape(32, 2, BLOCK)
    weights = values * halves(packed, 0)[..., None] + halves(packed, 32)[..., None]
    assert torch.equal(weights.flatten(1)[:19], unrounded(blocks))


def test_a_block_of_zeros_and_one_of_dust_are_nothing() -> None:
    weight = torch.cat((torch.zeros(16, 32), torch.full((16, 32), 1e-9)), dim=1)
    assert rounded_to_bytes(weight).eq(0).all()
