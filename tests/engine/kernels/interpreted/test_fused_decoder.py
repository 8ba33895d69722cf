"""The fused forward pass against the plain one: prompts, cached prefixes and decode rows, for every kind of layer."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from triton.errors import TritonError

from local_engine.attention.cpu import CpuAttention
from local_engine.attention.triton_attention import TritonAttention, leading_ones
from local_engine.config import ExpertShape, ModelConfig, WeightFormat
from local_engine.cuda_graph import DecodeBuffers, DecodeRow
from local_engine.kernels import gpu_runner
from local_engine.kernels.advance import advance
from local_engine.kernels.device_sampler import DeviceDraw, DeviceSampler, accepted
from local_engine.kernels.fused_decoder import FusedDecoder
from local_engine.kernels.gpu_assembly import GpuPlan, build_gpu_runner
from local_engine.kernels.gpu_runner import (
    FUSED,
    OVERLAPPING,
    SEPARATE,
    GpuRunner,
    OneRow,
    Tried,
    attention_batch,
    quickest,
    tried_row,
)
from local_engine.layers.linear import DenseLinear
from local_engine.loading.weights import BLOCK, NibbleBlocks
from local_engine.model import DecoderModel
from local_engine.model_runner import ModelRunner
from local_engine.sampling.constraints import ConstraintCompiler
from local_engine.sampling.sampling_params import Constraint, SamplingParams
from local_engine.text.tokenizer import Tokenizer
from local_engine.transfer import fetch
from tests.engine.kernels.builders import relative_error
from tests.engine.kernels.models import make_batch, make_config, make_request, make_weights
from tests.unit.local_engine.tiny_models import byte_level

CPU = torch.device("cpu")


def plain_runner(config: ModelConfig) -> ModelRunner:
    attention = CpuAttention(window=config.sliding_window, scale=config.attention_scale)
    model = DecoderModel(
        config, make_weights(config), build_linear=DenseLinear, attention=attention, context_window=128
    )
    return ModelRunner(model, blocks=16, block_size=16, kv_dtype=torch.float32)


HEAD_NORMS = make_config(has_qk_norm=True)
KINDS = {
    "biases": make_config(has_qkv_bias=True),
    "head norms": HEAD_NORMS,
    "scales, a layer without rotation": replace(
        make_config(), unrotated_layers=frozenset({1}), embedding_scale=3.0, attention_scale=0.3, rotary_size=24
    ),
    "norms behind, and over all heads": replace(HEAD_NORMS, norm_place="behind", has_wide_qk_norm=True),
    "norms on both sides, a window in some layers": replace(
        HEAD_NORMS,
        norm_place="both",
        activation="gelu",
        sliding_window=9,
        full_layers=frozenset({1}),
        local_rope_theta=100.0,
    ),
    "experts": replace(make_config(), experts=ExpertShape(5, 2, 48, dense_layers=frozenset({0}))),
}


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())
def test_logits_equal_the_plain_models_step_after_step(config: ModelConfig) -> None:
    fused = build_gpu_runner(
        config,
        make_weights(config),
        GpuPlan(weights="float32", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4),
        CPU,
    )
    plain = plain_runner(config)
    long, short = make_request("long", [*range(20)], [3, 1, 7]), make_request("short", [5, 9, 11], [2])
    late = make_request("late", [*range(100, 118)], [6, 8])
    steps = [[(long, 0), (short, 0)], [(long, 20), (short, 3), (late, 0)], [(short, 4), (late, 18)]]
    for step in steps:
        batch = make_batch(*step)
        wanted = plain.run(batch)
        assert relative_error(fused.run(batch), wanted) < 1e-5
        for request, _ in step:
            request.token_ids.append(42)


def test_steps_with_experts_are_captured_with_padded_rows_beside_them() -> None:
    """Three answers in a step of four: the fourth row is padding, and uses no expert."""
    config = replace(KINDS["experts"], layers=1, vocabulary_size=64, experts=ExpertShape(5, 2, 48))
    plan = GpuPlan(weights="float32", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4)
    runner, plain = build_gpu_runner(config, make_weights(config), plan, CPU), plain_runner(config)
    assert not runner.model.can_fuse_one_row
    requests = [make_request(name, [number, 9, 5], [number]) for number, name in enumerate("abc")]
    for start in (0, 3):
        batch = make_batch(*((request, start) for request in requests))
        assert relative_error(runner.run(batch), plain.run(batch)) < 1e-5
        for request in requests:
            request.token_ids.append(42)


def test_a_deterministic_runner_computes_each_row_as_if_it_were_alone() -> None:
    """A product's rounding depends on its number of rows."""
    config = replace(make_config(), layers=1, vocabulary_size=64)
    plan = GpuPlan(
        weights="float32", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4, is_deterministic=True
    )
    together, alone = (build_gpu_runner(config, make_weights(config), plan, CPU) for _ in range(2))
    requests = [make_request(name, [number, 9, 5], [number]) for number, name in enumerate("abc")]
    for start in (0, 3):
        pairs = [(request, start) for request in requests]
        wanted = torch.cat([alone.run(make_batch(pair)).clone() for pair in pairs])
        assert torch.equal(together.run(make_batch(*pairs)), wanted)
        for request in requests:
            request.token_ids.append(42)


def test_one_row_takes_fewer_launches_to_the_same_logits() -> None:
    """With one layer and few tokens, since the interpreter takes milliseconds per output of a product."""
    config = replace(make_config(has_qkv_bias=True, has_qk_norm=True), layers=1, vocabulary_size=64)
    plan = GpuPlan(weights="float32", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4)
    fused, plain = build_gpu_runner(config, make_weights(config), plan, CPU), plain_runner(config)
    assert fused.model.can_fuse_one_row
    assert not fused.model.fuses_one_row, "nothing is measured without a device"
    fused.model.fuses_one_row = True
    request = make_request("a", [*range(20)], [3, 1])
    for start in (0, 20):
        batch = make_batch((request, start))
        assert relative_error(fused.run(batch), plain.run(batch)) < 1e-5
        request.token_ids.append(42)


def test_one_row_of_e4m3_matrices_takes_fewer_launches() -> None:
    """A difference in the last bit makes the interpreter round other values wrongly (test_quantised checks the products
    themselves): the bound catches wrong layouts."""
    config = replace(make_config(has_qkv_bias=True), layers=1, heads=2, kv_heads=1, intermediate_size=80)
    config = replace(config, vocabulary_size=64)
    plan = GpuPlan(weights="fp8", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4)
    runners = [build_gpu_runner(config, make_weights(config), plan, CPU) for _ in range(2)]
    assert runners[0].model.can_fuse_one_row
    runners[0].model.fuses_one_row = True
    request = make_request("a", [*range(20)], [3, 1])
    for start in (0, 20):
        batch = make_batch((request, start))
        fused, separate = (runner.run(batch) for runner in runners)
        assert relative_error(fused, separate) < 0.30
        request.token_ids.append(42)


@pytest.mark.parametrize(
    ("separate_seconds", "fused_seconds", "fuses"),
    [(2.0, 1.0, True), (2.0, 3.0, False), (2.0, None, False), (None, 3.0, True), (None, None, None)],
)
def test_the_quicker_way_is_kept_and_one_that_does_not_run_is_not(
    separate_seconds: float | None, fused_seconds: float | None, fuses: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that rejects single rows in some format used to fail all other steps, too."""
    config = replace(make_config(), layers=1, vocabulary_size=64)
    plan = GpuPlan(weights="float32", kv_dtype=torch.float32, blocks=16, context_window=128, max_rows=4)
    runner = build_gpu_runner(config, make_weights(config), plan, CPU)

    def median_seconds(step: object) -> float:
        seconds = fused_seconds if runner.model.fuses_one_row else separate_seconds
        if seconds is None:
            raise TritonError("too many registers") if runner.model.fuses_one_row else RuntimeError("not supported")
        return seconds

    monkeypatch.setattr(GpuRunner, "device", torch.device("cuda"))
    monkeypatch.setattr(gpu_runner, "median_seconds", median_seconds)
    if fuses is None:
        with pytest.raises(RuntimeError, match="not supported"):
            runner.choose_one_row((SEPARATE, FUSED))
        return
    runner.choose_one_row((SEPARATE, FUSED))
    assert runner.model.fuses_one_row == fuses


@pytest.mark.parametrize(
    ("window", "blocks", "length", "held"), [(4096, 900, 1024, 64), (1000, 900, 1000, 63), (4096, 3, 48, 3)]
)
def test_ways_are_compared_within_the_window_and_the_cache(window: int, blocks: int, length: int, held: int) -> None:
    """Positions past the window have no rotation."""
    row = tried_row(window, 16, blocks)
    assert (row.length, row.block_ids) == (length, list(range(held)))


@pytest.mark.parametrize(
    ("seconds", "last_logit", "wanted"),
    [
        ((3.0, 2.0, 1.0), 5.0, OVERLAPPING),
        ((3.0, 2.0, 1.0), 5.000001, FUSED),
        ((1.0, 2.0, 3.0), 5.0, SEPARATE),
        ((1.0, 2.0), 5.0, SEPARATE),
    ],
)
def test_kernels_overlap_where_that_is_quicker_and_changes_no_bit(
    seconds: tuple[float, ...], last_logit: float, wanted: OneRow
) -> None:
    """The separate kernels sum in another order, so they are not compared."""
    logits = (torch.tensor([4.9]), torch.tensor([5.0]), torch.tensor([last_logit]))
    ways = (SEPARATE, FUSED, OVERLAPPING)
    tried = {way: Tried(taken, got) for way, taken, got in zip(ways, seconds, logits, strict=False)}
    assert quickest(tried) == wanted


def test_four_bits_are_not_fused() -> None:
    config = make_config()
    plan = GpuPlan(weights="int4", kv_dtype=torch.bfloat16, blocks=16, context_window=128, max_rows=4)
    assert not build_gpu_runner(config, make_weights(config), plan, CPU).model.can_fuse_one_row


def test_decode_steps_that_the_device_drives_by_itself() -> None:
    """Three greedy tokens through static buffers and `advance`, beside a padded row, against whole prompts."""
    config = make_config()
    model = FusedDecoder(
        config,
        make_weights(config),
        build_linear=DenseLinear,
        attention=TritonAttention(),
        context_window=128,
        dtype=torch.float32,
    )
    runner = ModelRunner(model, blocks=16, block_size=16, kv_dtype=torch.float32)
    prompt, blocks = [7, 8, 9, *range(50, 61)], [4, 2]
    first = int(runner.run(make_batch((make_request("a", prompt, blocks), 0))).argmax())
    buffers = DecodeBuffers(4, 8, 16, CPU)
    buffers.fill([DecodeRow(first, len(prompt) + 1, blocks)], 2)
    inputs = buffers.view(2)
    drawn = [first]
    for _ in range(3):
        hidden = model.forward(inputs.token_ids, inputs.positions, runner.caches, attention_batch(inputs))
        chosen = model.head(hidden).argmax(-1)
        advance(inputs, chosen, 16)
        drawn.append(int(chosen[0]))
    assert inputs.slots.tolist() == [2 * 16 + 1, -1]
    assert inputs.seq_lens.tolist() == [len(prompt) + 4, 0]
    fresh = plain_runner(config)
    for count, token in enumerate(drawn):
        logits = fresh.run(make_batch((make_request("b", prompt + drawn[:count], [9, 10]), 0)))
        assert int(logits.argmax()) == token


@pytest.mark.parametrize(
    ("weights", "bound", "experts"), [("fp8", 0.30, None), ("fp8", 0.30, ExpertShape(3, 2, 48)), ("int4", 0.35, None)]
)
def test_quantised_models_stay_near_the_exact_one(
    weights: WeightFormat, bound: float, experts: ExpertShape | None
) -> None:
    """The bounds are for random weights, which quantise worse than trained ones; they catch wrong layouts.

    The interpreter also rounds carries of e4m3 wrongly (see test_quantised).
    """
    config = replace(make_config(), experts=experts)
    fused = build_gpu_runner(
        config,
        make_weights(config),
        GpuPlan(weights=weights, kv_dtype=torch.bfloat16, blocks=16, context_window=128, max_rows=4),
        CPU,
    )
    batch = make_batch((make_request("a", [*range(9)], [3]), 0))
    assert relative_error(fused.run(batch), plain_runner(config).run(batch)) < bound


class Rounded:
    """Weights whose layers' matrices have 16 levels per block of 32, so that they can be provided in 4 bits."""

    def __init__(self, config: ModelConfig) -> None:
        self._weights = make_weights(config)

    def __contains__(self, name: str) -> bool:
        return name in self._weights

    def nibbles(self, name: str) -> NibbleBlocks | None:
        if "_proj.weight" not in name:
            return None
        blocks = self._weights.tensor(name).unflatten(1, (-1, BLOCK))
        offsets = blocks.amin(-1).half().float()
        scales = ((blocks.amax(-1) - offsets) / 15).half().float()
        values = ((blocks - offsets[..., None]) / scales[..., None]).round().clamp(0, 15).to(torch.uint8)
        return NibbleBlocks(values.flatten(1), scales, offsets)

    def tensor(self, name: str) -> torch.Tensor:
        held = self.nibbles(name)
        if held is None:
            return self._weights.tensor(name)
        blocks = held.values.unflatten(1, (-1, BLOCK)).float() * held.scales[..., None] + held.offsets[..., None]
        return blocks.flatten(1)


def test_a_files_own_four_bits_are_not_rounded_again() -> None:
    config = make_config()
    weights = Rounded(config)
    plan = GpuPlan(weights="int4", kv_dtype=torch.bfloat16, blocks=16, context_window=128, max_rows=4)
    model = DecoderModel(config, weights, build_linear=DenseLinear, attention=CpuAttention(), context_window=128)
    batch = make_batch((make_request("a", [*range(9)], [3]), 0))
    wanted = ModelRunner(model, blocks=16, block_size=16, kv_dtype=torch.float32).run(batch)
    kept = build_gpu_runner(config, weights, plan, CPU, nibbles=weights.nibbles).run(batch)
    again = build_gpu_runner(config, weights, plan, CPU).run(batch)
    # The output head is rounded either way.
    assert relative_error(kept, wanted) < 0.12 < relative_error(again, wanted)


def test_device_sampler_draws_greedily_seeded_and_with_penalties() -> None:
    torch.manual_seed(1)
    sampler = DeviceSampler(CPU)
    banned = SamplingParams(temperature=0.0, logit_bias={3: -100.0})
    requests = [
        make_request("greedy", [1], [0]),
        make_request("banned", [1], [0], banned),
        make_request("cold", [1], [0], SamplingParams(temperature=1e-40)),
        make_request("seeded", [1, 2], [0], SamplingParams(seed=11, top_p=0.9)),
        make_request("twin", [1, 2], [0], SamplingParams(seed=11, top_p=0.9)),
    ]
    logits = torch.randn(5, 300)
    logits[:3, 3] = 60.0
    logits[4] = logits[3]
    untouched = logits.clone()
    ids = [drawn.token_ids for drawn in sampler.draw(logits, requests)]
    assert ids[0] == [3]
    assert ids[1] != [3]
    assert ids[2] == [3], "next to no temperature is none"
    assert ids[3] == ids[4]
    assert [drawn.token_ids for drawn in sampler.draw(logits, requests)] == ids
    assert torch.equal(logits, untouched), "log-probabilities are of the raw rows"


def test_a_cut_beside_a_request_does_not_change_its_draw() -> None:
    """A batch without top_k and top_p needs one launch fewer."""
    torch.manual_seed(4)
    logits = torch.randn(2, 300)
    plain = make_request("plain", [1], [0], SamplingParams(seed=11))
    cut = make_request("cut", [1], [0], SamplingParams(seed=12, top_k=2))
    sampler = DeviceSampler(CPU)
    [alone] = sampler.draw(logits[:1], [plain])
    both = sampler.draw(logits, [plain, cut])
    assert both[0] == alone
    assert both[1].token_ids[0] in logits[1].topk(2).indices


def test_device_sampler_verifies_drafts_and_reports_logprobs() -> None:
    logits = torch.zeros(4, 50)
    for row, token in enumerate((5, 6, 7, 8)):
        logits[row, token] = 9.0
    request = make_request("drafted", [1], [0], SamplingParams(temperature=0.0, logprobs=2))
    request.draft_token_ids = [5, 9]
    after = make_request("after", [1], [0])
    first, second = DeviceSampler(CPU).draw(logits, [request, after])
    assert first.token_ids == [5, 6], "the second draft is wrong, so what stands in its place ends the row"
    assert [entry.token_id for entry in first.logprobs] == [5, 6]
    assert first.logprobs[1].top[0][0] == 6
    assert second.token_ids == [8]


def test_logits_are_not_touched_for_who_asks_for_no_logprobs() -> None:
    """Creating a view of each of 256 rows took longer than everything else on the host between two steps."""
    ids = torch.tensor([5, 6])
    requests = [make_request(name, [1], [0]) for name in ("a", "b")]
    nothing = cast(torch.Tensor, None)
    draw = DeviceDraw(requests, [None, None], nothing, ids, fetch(ids))
    assert [drawn.token_ids for drawn in draw.wait()] == [[5], [6]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_device_sampler_keeps_constraints_and_draws_the_rest_of_the_batch_as_ever(temperature: float) -> None:
    """A seed gives the same tokens whatever else is in the batch."""
    tokenizer = Tokenizer(byte_level(), chat_template=None, bos_token_id=None, eos_token_ids=[257])
    sampler = DeviceSampler(CPU, ConstraintCompiler(tokenizer, 258))
    digits = SamplingParams(temperature=temperature, seed=3, constraint=Constraint("regex", "[0-9]{3}"), logprobs=0)
    seeded = make_request("seeded", [1], [0], SamplingParams(seed=11))
    bound = make_request("bound", [1], [0], digits)
    torch.manual_seed(2)
    while True:
        logits = torch.randn(2, 258)
        [alone] = DeviceSampler(CPU).draw(logits[:1], [seeded])
        beside, drawn = sampler.draw(logits, [seeded, bound])
        assert beside == alone
        assert drawn.logprobs[0].logprob == pytest.approx(float(logits[1].log_softmax(-1)[drawn.token_ids[0]]))
        bound.token_ids += drawn.token_ids
        if drawn.is_complete:
            break
    assert tokenizer.decode(bound.output_token_ids).isdecimal()
    assert bound.output_tokens == 3


@pytest.mark.parametrize(("ids", "kept"), [([5, 9, 7], [5, 9, 7]), ([4, 9, 7], [4]), ([5, 8, 7], [5, 8])])
def test_accepted_drafts(ids: list[int], kept: list[int]) -> None:
    assert accepted(ids, [5, 9]) == kept


@pytest.mark.parametrize(("lengths", "leading"), [([1, 1, 5, 1], 2), ([4], 0), ([1, 1], 2), ([], 0)])
def test_leading_decode_rows(lengths: list[int], leading: int) -> None:
    assert leading_ones(lengths) == leading
