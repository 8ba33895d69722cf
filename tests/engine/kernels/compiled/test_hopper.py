"""Every kernel, at the shapes of an 8B model, assembles for sm_90 without spilling and uses the instructions it was
written for."""

import re

import torch

from local_engine.attention.triton_paged_decode import paged_decode
from local_engine.attention.triton_paged_extend import paged_extend
from local_engine.attention.triton_tiles import PROGRAMS_PER_SM
from local_engine.kernels.expert_routing import Tiles, add_up, choose, lay_out
from local_engine.kernels.fp8 import quantise_rows
from local_engine.kernels.gemv import WARPS, gemv
from local_engine.kernels.grouped import grouped_int4_matmul, grouped_matmul, tile_height
from local_engine.kernels.int4 import Int4Weight, dequantise, int4_matmul
from local_engine.kernels.rms_norm import add_rms_norm, rms_norm
from local_engine.kernels.rope_store import HeadNorms, rope_store
from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.kernels.silu_mul import silu_mul
from tests.engine.kernels.compiled.offline import HOPPER, SHARED_BYTES_PER_BLOCK, Compiled, compiling, disassembled

HEADS, KV_HEADS, DIM, HIDDEN = 32, 8, 128, 4096
MULTIPROCESSORS = 132
BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
# Each is one of Hopper's own instructions: HMMA, HGMMA, LDGSTS, LDG.E.128, STG.E.128, and F2FP.F16.E4M3.UNPACK_B.
TENSOR_CORES, MATRIX_UNIT, ASYNCHRONOUS_COPY = r"mma\.sync", r"wgmma\.mma_async", r"cp\.async\.c[ag]"
WIDE_LOAD, WIDE_STORE = r"ld\.global\S*\.v4\.b32", r"st\.global\S*\.v4\.b32"
TWO_OF_E4M3 = r"cvt\.rn\.f16x2\.e4m3x2"


def check(kernels: list[Compiled], expected: int, *instructions: str) -> None:
    assert len(kernels) == expected
    for kernel in kernels:
        assert kernel.shared_bytes <= SHARED_BYTES_PER_BLOCK[HOPPER], kernel.name
        # A few bytes of stack for scalars are tolerable; a spilled tile is hundreds.
        assert kernel.stack_bytes <= 32, f"{kernel.name} spills {kernel.stack_bytes} bytes"
    for instruction in instructions:
        assert any(kernel.uses(instruction) for kernel in kernels), f"no {instruction}"


def at_once(kernel: Compiled, warps: int) -> int:
    """Programs that run concurrently on a Hopper multiprocessor: registers are allocated in units of eight per thread,
    and the system reserves a kilobyte of shared memory per program."""
    registers = -(-kernel.registers // 8) * 8
    by_registers = 65_536 // (registers * 32 * warps)
    by_shared = 228 * 1024 // (kernel.shared_bytes + 1024)
    return MULTIPROCESSORS * min(by_registers, by_shared, 64 // warps, 32)


def attention_inputs(kind: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    cache = torch.zeros(8, 16, KV_HEADS, DIM).to(kind)
    return (cache, cache, torch.zeros(2, 64, dtype=torch.int32), torch.ones(2, dtype=torch.int32))


def test_decode_uses_tensor_cores_and_asynchronous_copies() -> None:
    q = torch.zeros(2, HEADS, DIM, dtype=BF16)
    with compiling() as kernels:
        paged_decode(q, *attention_inputs(BF16), scale=1.0, splits=4)
    check(kernels, 2, TENSOR_CORES, ASYNCHRONOUS_COPY)
    assert at_once(kernels[0], 4) >= PROGRAMS_PER_SM * MULTIPROCESSORS
    with compiling() as kernels:
        paged_decode(q, *attention_inputs(FP8), scale=1.0, splits=1)
    check(kernels, 1, TENSOR_CORES)


def test_extend_uses_hoppers_matrix_unit_for_prefill_and_a_small_tile_for_verify_rows() -> None:
    q = torch.zeros(2, HEADS, DIM, dtype=BF16)
    bounds = torch.arange(3, dtype=torch.int32)
    with compiling() as kernels:
        paged_extend(q, *attention_inputs(BF16), bounds, max_query_tokens=512, scale=1.0)
    check(kernels, 1, MATRIX_UNIT, ASYNCHRONOUS_COPY)
    with compiling() as kernels:
        paged_extend(q, *attention_inputs(FP8), bounds, max_query_tokens=512, scale=1.0, window=4096)
    check(kernels, 1, MATRIX_UNIT)
    with compiling() as kernels:
        paged_extend(q, *attention_inputs(FP8), bounds, max_query_tokens=4, scale=1.0)
    check(kernels, 1, TENSOR_CORES)


def test_layers() -> None:
    """Positions and slots are int32 in captured steps, int64 in others."""
    x = torch.zeros(2, HIDDEN, dtype=BF16)
    qkv = torch.zeros(2, (HEADS + 2 * KV_HEADS) * DIM, dtype=BF16)
    turns, tokens = torch.zeros(9, DIM // 2), torch.zeros(2, dtype=torch.int64)
    cache = torch.zeros(2, 16, KV_HEADS, DIM, dtype=BF16)
    norms = HeadNorms(x[0], x[1], 1e-6)
    with compiling() as kernels:
        add_rms_norm(x, x.clone(), x[0], 1e-5)
        silu_mul(x)
        quantise_rows(x)
        rope_store(qkv, (turns, turns), tokens, tokens, (cache, cache), q_heads=HEADS, norms=norms)
        rope_store(qkv, (turns, turns), tokens.int(), tokens.int(), (cache.to(FP8), cache.to(FP8)), q_heads=HEADS)
    check(kernels, 5, WIDE_LOAD, WIDE_STORE)


def test_one_row() -> None:
    """The four products of an 8B model's layer, and its head: 16-byte vectors, and all programs of a product with 4,096
    outputs run at once."""
    x, wide, norm = torch.zeros(1, HIDDEN, dtype=BF16), torch.zeros(1, 14_336, dtype=BF16), torch.zeros(HIDDEN)
    square = torch.zeros(HIDDEN, HIDDEN, dtype=BF16)
    gate_up, down = torch.zeros(2 * 14_336, HIDDEN, dtype=BF16), torch.zeros(HIDDEN, 14_336, dtype=BF16)
    with compiling() as kernels:
        gemv(x, square, norm=norm.to(BF16), eps=1e-5)
        gemv(x, square, residual=x)
        gemv(x, gate_up, norm=norm.to(BF16), eps=1e-5, gates=True)
        gemv(wide, down, residual=x)
        gemv(x, gate_up)
        gemv(wide, down, residual=x, overlaps=True)
    check(kernels, 6)
    for kernel in kernels:
        assert kernel.uses(WIDE_LOAD) or kernel.uses(ASYNCHRONOUS_COPY), kernel.name
        assert at_once(kernel, WARPS) >= HIDDEN // 4, kernel


def test_one_row_of_e4m3() -> None:
    """Half the bytes; the hardware converts two values at a time; all programs run at once."""
    x, wide = torch.zeros(1, HIDDEN, dtype=BF16), torch.zeros(1, 14_336, dtype=BF16)
    gate_up, down = torch.zeros(2 * 14_336, HIDDEN, dtype=FP8), torch.zeros(HIDDEN, 14_336, dtype=FP8)
    scales = torch.zeros(2 * 14_336, 1)
    with compiling() as kernels:
        gemv(x, gate_up, scales=scales, norm=x[0], eps=1e-5, gates=True)
        gemv(wide, down, scales=scales, residual=x)
        gemv(wide, down, scales=scales, residual=x, overlaps=True)
    check(kernels, 3, TWO_OF_E4M3)
    for kernel in kernels:
        assert kernel.uses(WIDE_LOAD) or kernel.uses(ASYNCHRONOUS_COPY), kernel.name
        assert kernel.stack_bytes == 0, kernel
        assert at_once(kernel, WARPS) >= HIDDEN // 8, kernel


def test_a_kernel_that_begins_early_touches_nothing_before_the_last_one_has_ended() -> None:
    """Except weights, which no kernel writes. It lets the next kernel start before it waits itself."""
    x, tokens = torch.zeros(1, HIDDEN, dtype=BF16), torch.zeros(1, dtype=torch.int32)
    weight, narrow = torch.zeros(2 * HIDDEN, HIDDEN, dtype=BF16), torch.zeros(2 * HIDDEN, HIDDEN, dtype=FP8)
    qkv, turns = torch.zeros(1, (HEADS + 2 * KV_HEADS) * DIM, dtype=BF16), torch.zeros(9, DIM // 2)
    keys, values, table, _ = attention_inputs(BF16)
    with compiling() as kernels:
        gemv(x, weight, norm=x[0], eps=1e-5, gates=True, overlaps=True)
        gemv(x, weight[:HIDDEN], residual=x, overlaps=True)
        gemv(x, narrow, scales=torch.zeros(2 * HIDDEN, 1), norm=x[0], eps=1e-5, gates=True, overlaps=True)
        rope_store(qkv, (turns, turns), tokens, tokens, (keys, values), q_heads=HEADS, overlaps=True)
        paged_decode(
            qkv.view(1, -1, DIM)[:, :HEADS], keys, values, table[:1], tokens, scale=1.0, splits=4, overlaps=True
        )
        rms_norm(x, x[0], 1e-5, overlaps=True)
    check(kernels, 7)
    for kernel, sass in zip(kernels, disassembled(kernels), strict=True):
        touches = re.findall(r"\b(LDG|STG|LDGSTS|LD|ST|ATOM|RED|CCTL|ACQBULK|PREEXIT)\b", sass)
        before = touches[: touches.index("ACQBULK")]
        assert before.count("PREEXIT") == 1, kernel.name
        assert set(before) == ({"LDG", "PREEXIT"} if kernel.name == "_gemv_kernel" else {"PREEXIT"}), kernel.name


def test_int4() -> None:
    groups = torch.zeros(HIDDEN, HIDDEN // 128, dtype=BF16)
    weight = Int4Weight(torch.zeros(HIDDEN, HIDDEN // 2, dtype=torch.uint8), groups, groups)
    with compiling() as kernels:
        for rows in (1, 16, 64):
            int4_matmul(torch.zeros(rows, HIDDEN, dtype=BF16), weight)
    check(kernels, 3, TENSOR_CORES, MATRIX_UNIT)


def test_a_files_own_four_bits() -> None:
    """GGUF's, with a scale and an offset in float16 per 32 weights."""
    groups = torch.zeros(HIDDEN, HIDDEN // 32, dtype=torch.float16)
    weight = Int4Weight(torch.zeros(HIDDEN, HIDDEN // 2, dtype=torch.uint8), groups, groups)
    with compiling() as kernels:
        for rows in (1, 64):
            int4_matmul(torch.zeros(rows, HIDDEN, dtype=BF16), weight)
        dequantise(weight, BF16)
    check(kernels, 3, MATRIX_UNIT, WIDE_STORE)


def test_experts() -> None:
    """Qwen3-30B-A3B's, 8 of 128 in use: an answer's low tiles prefetch, a prompt's high ones use the matrix unit."""
    experts, used, hidden, size = 128, 8, 2048, 768
    gate_up = torch.empty(experts * 2 * size, hidden, dtype=BF16)
    groups = torch.empty(experts * 2 * size, hidden // 128, dtype=BF16)
    packed = Int4Weight(torch.empty(experts * 2 * size, hidden // 2, dtype=torch.uint8), groups, groups)
    x, shares, chosen = torch.empty(8, hidden, dtype=BF16), torch.empty(1, used), torch.zeros(1, used).int()
    with compiling() as kernels:
        choose(torch.empty(1, experts, dtype=BF16), used, shares_add_up=True, slots=chosen)
        tiles = lay_out(chosen, experts, tile_height(used, experts, BF16))
        grouped_int4_matmul(x[:1], packed, tiles, used, used=used, gates=True)
        add_up(x, chosen, shares)
    check(kernels, 4)
    with compiling() as kernels:
        grouped_matmul(x[:1], gate_up, tiles, used, used=used, gates=True)
    check(kernels, 1, TENSOR_CORES, ASYNCHRONOUS_COPY)
    assert at_once(kernels[0], 4) >= used * size // 32, "all programs of one answer's experts"
    high = Tiles(chosen[0], torch.empty(used, tile_height(8192 * used, experts, BF16)).int(), experts)
    with compiling() as kernels:
        grouped_matmul(x, gate_up, high, used, used=used, gates=True)
    check(kernels, 1, MATRIX_UNIT)


def test_sampling() -> None:
    """Programs that share a row use few enough registers for four of them to share a multiprocessor, too."""
    floats, ints = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    how = SamplingTensors(floats, ints, floats, floats, ints.long(), ints)
    with compiling() as kernels:
        sample(torch.zeros(2, 128_256), how)
        sample(torch.zeros(2, 151_936, dtype=BF16), how, cuts=False)
    check(kernels, 7)
    for kernel in kernels:
        assert kernel.registers <= 64 or kernel.name == "_threshold_kernel", kernel
