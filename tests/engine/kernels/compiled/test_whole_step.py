"""Whole steps of the GPU benchmark's models on the fake device: nothing breaks a capture, waits for the host, or
compiles in the middle of an answer."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from benchmarks.engine_gpu.shapes import LLAMA_8B, QWEN3_30B_A3B, QWEN3_600M
from local_engine.attention.protocol import AttentionBatch
from local_engine.attention.triton_attention import TritonAttention
from local_engine.config import ExpertShape, ModelConfig, WeightFormat
from local_engine.cuda_graph import DecodeInputs
from local_engine.kernels.advance import advance
from local_engine.kernels.fused_decoder import FusedDecoder
from local_engine.kernels.gpu_assembly import BUILDERS
from local_engine.kernels.gpu_runner import attention_batch
from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.model import KvCache
from tests.engine.kernels.compiled.faked import DEVICE, Noted, faked, noting
from tests.engine.kernels.models import RandomWeights

LAYERS, MAX_ROWS, MAX_BLOCKS = 2, 256, 256
PRODUCTS = ("_gemv_kernel", "_gemm_kernel", "aten.linear.default", "aten._scaled_mm.default")
EXPERTS = ("_choose_expert_kernel", "_lay_out_kernel", "_grouped_kernel", "_grouped_int4_kernel", "_add_up_kernel")
# Each expert is created separately before they are stacked, which takes a while if there are many.
FEW_EXPERTS = replace(QWEN3_30B_A3B, name="experts", experts=ExpertShape(count=4, used=2, size=768))
KERNELS = ("_rms_norm_kernel", "_rope_store_kernel", "_split_kernel", "_reduce_kernel", "_silu_mul_kernel")


class NoWeights(RandomWeights):
    """A source of tensors without content."""

    def tensor(self, name: str) -> torch.Tensor:
        return torch.empty(self.shapes[name], dtype=torch.bfloat16, device=DEVICE)


def build(shape: ModelConfig, weights: WeightFormat, kv_dtype: torch.dtype) -> tuple[FusedDecoder, list[KvCache]]:
    """A model of two layers, with their caches."""
    shape = replace(shape, layers=LAYERS)
    model = FusedDecoder(
        shape,
        NoWeights(shape),
        build_linear=BUILDERS[weights],
        attention=TritonAttention(splits=8),
        context_window=4096,
        dtype=torch.bfloat16,
        device=DEVICE,
    )
    sizes = (4096, 16, shape.kv_heads, shape.head_size)
    caches = [KvCache(*(torch.empty(sizes, dtype=kv_dtype, device=DEVICE) for _ in range(2))) for _ in range(LAYERS)]
    return model, caches


def ints(*sizes: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype, device=DEVICE)


def buffers(rows: int) -> DecodeInputs:
    """Inputs laid out as by DecodeBuffers."""
    flat = ints((4 + MAX_BLOCKS) * MAX_ROWS)
    columns = flat[: 4 * MAX_ROWS].view(4, MAX_ROWS)[:, :rows]
    table = flat[4 * MAX_ROWS :].view(MAX_ROWS, MAX_BLOCKS)[:rows]
    return DecodeInputs(columns[0], columns[1], columns[2], columns[3], table)


def captured_step(model: FusedDecoder, caches: list[KvCache], rows: int) -> Callable[[], None]:
    """What the benchmark captures: the step, its draw, and `advance`."""
    inputs, logits = buffers(rows), torch.empty(MAX_ROWS, model.config.vocabulary_size, device=DEVICE)
    ones, zeros = torch.ones(rows, device=DEVICE), ints(rows)
    how = SamplingTensors(ones, zeros, ones, ones, ints(rows, dtype=torch.int64), inputs.seq_lens)

    def step() -> None:
        hidden = model.forward(inputs.token_ids, inputs.positions, caches, attention_batch(inputs))
        advance(inputs, sample(logits[: len(hidden)].copy_(model.head(hidden)), how, cuts=False), 16)

    return step


def noted_step(step: Callable[[], None]) -> Noted:
    with noting() as noted:
        step()
    return noted


@pytest.mark.parametrize("rows", [1, 256])
@pytest.mark.parametrize(
    ("shape", "weights", "kv_dtype", "of_a_layer", "of_the_head"),
    [
        (LLAMA_8B, "bfloat16", torch.bfloat16, 10, 1),
        (LLAMA_8B, "fp8", torch.float8_e4m3fn, 14, 2),
        (QWEN3_600M, "bfloat16", torch.bfloat16, 10, 1),
        (FEW_EXPERTS, "bfloat16", torch.bfloat16, 13, 1),
        (FEW_EXPERTS, "fp8", torch.bfloat16, 17, 2),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_decode_step_can_be_captured(
    shape: ModelConfig, weights: WeightFormat, kv_dtype: torch.dtype, of_a_layer: int, of_the_head: int, rows: int
) -> None:
    """None of it runs on the host, and a second step compiles nothing new."""
    with faked():
        model, caches = build(shape, weights, kv_dtype)
        step = captured_step(model, caches, rows)
        warmed_up, captured = noted_step(step), noted_step(step)
    assert set(captured.launches) <= set(warmed_up.launches)
    launches = captured.count(*PRODUCTS, *KERNELS, *EXPERTS, "_quantise_rows_kernel")
    assert launches == 1 + LAYERS * of_a_layer + of_the_head, "the first norm belongs to no layer"
    assert captured.count("_peak_kernel", "_draw_kernel", "_choose_kernel", "_advance_kernel") == 4
    assert not captured.count("_threshold_kernel")


@pytest.mark.parametrize("weights", ["bfloat16", "fp8"])
def test_a_step_of_one_answer_takes_seven_launches_a_layer(weights: WeightFormat) -> None:
    with faked():
        model, caches = build(LLAMA_8B, weights, torch.bfloat16)
        assert model.can_fuse_one_row
        model.fuses_one_row = True
        noted = noted_step(captured_step(model, caches, 1))
    assert noted.count("_gemv_kernel") == 4 * LAYERS + 1
    assert noted.count(*PRODUCTS, *KERNELS, "_quantise_rows_kernel") == 7 * LAYERS + 2, "and the last norm and the head"


@pytest.mark.parametrize("weights", ["bfloat16", "fp8"])
def test_all_kernels_of_one_answers_step_may_overlap_and_none_of_others(weights: WeightFormat) -> None:
    """Each waits for all of the previous one, so an unbroken chain is equivalent to running one after another."""
    with faked():
        model, caches = build(LLAMA_8B, weights, torch.bfloat16)
        model.fuses_one_row = model.overlaps_one_row = True
        alone, together = (noted_step(captured_step(model, caches, rows)) for rows in (1, 2))
    assert len(alone.early) == 7 * LAYERS + 2
    assert alone.early == [name for name, *_ in alone.launches][: len(alone.early)], "the draw begins when all is there"
    assert not together.early


@pytest.mark.parametrize(
    ("shape", "weights"),
    [(LLAMA_8B, "bfloat16"), (LLAMA_8B, "fp8"), (FEW_EXPERTS, "bfloat16")],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_prompts_beside_answers_never_wait_for_the_host(shape: ModelConfig, weights: WeightFormat) -> None:
    counts = [1, 1, 500, 37]
    tokens, sequences = sum(counts), len(counts)
    with faked():
        model, caches = build(shape, weights, torch.bfloat16)
        wide = ints(tokens, dtype=torch.int64)
        batch = AttentionBatch(ints(sequences + 1), ints(sequences), ints(sequences, 63), wide, counts, counts, [])
        with noting() as noted:
            logits = model.logits(model.forward(wide, wide, caches, batch)[ints(sequences, dtype=torch.int64)])
            drawn = logits.argmax(-1)
    assert (logits.dtype, logits.shape) == (torch.float32, (sequences, shape.vocabulary_size))
    assert drawn.device == DEVICE
    assert noted.count("_extend_kernel") == noted.count("_split_kernel") == LAYERS
