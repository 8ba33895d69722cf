"""Checks a captured step, and every kernel against its reference, on the device before anything is timed."""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.engine_gpu.captured import error_of_step
from local_engine.attention.triton_paged_decode import paged_decode
from local_engine.attention.triton_paged_extend import paged_extend
from local_engine.kernels import fp8, int4, reference
from local_engine.kernels.expert_routing import choose
from local_engine.kernels.experts import GroupedExperts
from local_engine.kernels.gemv import gemv
from local_engine.kernels.gpu_runner import FUSED, OVERLAPPING, SEPARATE, OneRow
from local_engine.kernels.launch import is_hopper_or_later
from local_engine.kernels.rms_norm import add_rms_norm, rms_norm
from local_engine.kernels.rope_store import HeadNorms, rope_store
from local_engine.kernels.sampling import SamplingTensors, sample
from local_engine.kernels.silu_mul import silu_mul

HEADS, KV_HEADS, DIM, HIDDEN, BLOCK_SIZE = 32, 8, 128, 4096, 16
LENGTHS = (1, 700, 64, 1500)
BF16 = torch.bfloat16
# bfloat16 has eight significant bits, and Hopper sums e4m3 products with fewer bits than float32 has: errors of some
# thousandths are normal. A wrong layout has an error of about 1.
BOUND = 0.02
PART = "kernels_against_references"


def measure(check: Callable[[torch.device], float], device: torch.device) -> float:
    """Relative error of one kernel; raises ValueError if it is beyond its bound."""
    torch.manual_seed(0)
    error = check(device)
    if not error < BOUND:
        raise ValueError(f"a relative error of {error}, and {BOUND} is the bound")
    return error


def relative_error(got: Tensor, wanted: Tensor) -> float:
    return float((got.cpu().float() - wanted.float()).norm() / wanted.float().norm())


# Keys, values, block table, lengths.
Paged = tuple[Tensor, Tensor, Tensor, Tensor]


def _paged(device: torch.device, dtype: torch.dtype) -> tuple[Paged, Paged]:
    """Caches, table and lengths, on the device and on the host."""
    columns = -(-max(LENGTHS) // BLOCK_SIZE)
    blocks = columns * len(LENGTHS)
    caches = [torch.randn(blocks, BLOCK_SIZE, KV_HEADS, DIM).to(dtype) for _ in range(2)]
    table = torch.randperm(blocks).view(len(LENGTHS), columns).int()
    host = (caches[0], caches[1], table, torch.tensor(LENGTHS, dtype=torch.int32))
    return (host[0].to(device), host[1].to(device), host[2].to(device), host[3].to(device)), host


def check_decode(device: torch.device, dtype: torch.dtype = BF16, splits: int = 8) -> float:
    on_device, host = _paged(device, dtype)
    q = torch.randn(len(LENGTHS), HEADS, DIM).to(BF16)
    got = paged_decode(q.to(device), *on_device, scale=DIM**-0.5, splits=splits)
    bounds = torch.arange(len(LENGTHS) + 1, dtype=torch.int32)
    return relative_error(got, reference.paged_attention(q, *host, bounds, scale=DIM**-0.5))


def check_extend(device: torch.device) -> float:
    on_device, host = _paged(device, BF16)
    bounds = torch.tensor([0, 1, 301, 305, 705], dtype=torch.int32)
    q = torch.randn(705, HEADS, DIM).to(BF16)
    got = paged_extend(q.to(device), *on_device, bounds.to(device), max_query_tokens=400, scale=DIM**-0.5, window=600)
    return relative_error(got, reference.paged_attention(q, *host, bounds, scale=DIM**-0.5, window=600))


def check_norm(device: torch.device) -> float:
    x, residual, weight = (torch.randn(5, HIDDEN).to(BF16) for _ in range(3))
    got = add_rms_norm(x.to(device), residual.to(device), weight[0].to(device), 1e-5)
    return relative_error(got, reference.add_rms_norm(x, residual, weight[0], 1e-5)[0])


def check_silu_mul(device: torch.device) -> float:
    gate_up = torch.randn(5, 2 * HIDDEN).to(BF16)
    return relative_error(silu_mul(gate_up.to(device)), reference.silu_mul(gate_up))


def check_rope(device: torch.device) -> float:
    qkv = torch.randn(3, (HEADS + 2 * KV_HEADS) * DIM).to(BF16)
    cos, sin = torch.randn(9, DIM // 2), torch.randn(9, DIM // 2)
    weight, positions = torch.randn(DIM).to(BF16), torch.tensor([1, 8, 3])
    cache = torch.zeros(2, BLOCK_SIZE, KV_HEADS, DIM, dtype=BF16)
    q = qkv.view(3, -1, DIM)[:, :HEADS].float()
    wanted = reference.rotate(reference.rms_norm(q, weight, 1e-6), cos[positions], sin[positions])
    moved = qkv.to(device)
    rope_store(
        moved,
        (cos.to(device), sin.to(device)),
        positions.to(device),
        positions.to(device),
        (cache.to(device), cache.to(device)),
        q_heads=HEADS,
        norms=HeadNorms(weight.to(device), weight.to(device), 1e-6),
    )
    return relative_error(moved.view(3, -1, DIM)[:, :HEADS], wanted)


def moved_int4(weight: int4.Int4Weight, device: torch.device) -> int4.Int4Weight:
    return int4.Int4Weight(weight.packed.to(device), weight.scales.to(device), weight.offsets.to(device))


def check_int4(device: torch.device, rows: int) -> float:
    weight = int4.quantise(torch.randn(512, HIDDEN))
    x = torch.randn(rows, HIDDEN).to(BF16)
    wanted = reference.int4_matmul(x, weight.packed, weight.scales, weight.offsets)
    return relative_error(int4.int4_matmul(x.to(device), moved_int4(weight, device)), wanted)


def check_one_row(device: torch.device, *, gates: bool) -> float:
    """With a norm before and silu after, or with a residual after."""
    x, weight, residual = (torch.randn(rows, HIDDEN).to(BF16) for rows in (1, 1024, 1))
    if gates:
        wanted = reference.silu_mul((reference.rms_norm(x, residual[0], 1e-5).float() @ weight.float().T).to(BF16))
        got = gemv(x.to(device), weight.to(device), norm=residual[0].to(device), eps=1e-5, gates=True)
        return relative_error(got, wanted)
    wanted = (x.float() @ weight.float().T).to(BF16).float() + residual[:, :1024].float()
    return relative_error(gemv(x.to(device), weight.to(device), residual=residual[:, :1024].to(device)), wanted)


def check_one_row_of_e4m3(device: torch.device) -> float:
    """Against the separate kernels: norm, rounding, product, silu."""
    x, norm = torch.randn(1, HIDDEN).to(BF16).to(device), torch.randn(HIDDEN).to(BF16).to(device)
    weight = fp8.quantise_weight(torch.randn(1024, HIDDEN).to(device))
    got = gemv(x, weight.values, scales=weight.scales, norm=norm, eps=1e-5, gates=True)
    return relative_error(got, silu_mul(fp8.fp8_matmul(rms_norm(x, norm, 1e-5), weight)).cpu())


def check_overlapping(device: torch.device) -> float:
    """A chain of products that begin early, if the device can, against the same chain one after another."""
    state, norm = torch.randn(1, HIDDEN, device=device).to(BF16), torch.ones(HIDDEN, device=device).to(BF16)
    wide = (torch.randn(2 * HIDDEN, HIDDEN, device=device) / HIDDEN**0.5).to(BF16)

    def chain(*, overlaps: bool) -> Tensor:
        x = state
        for _ in range(32):
            gated = gemv(x, wide, norm=norm, eps=1e-5, gates=True, overlaps=overlaps)
            x = gemv(gated, wide[:HIDDEN], residual=x, overlaps=overlaps)
        return x

    return relative_error(chain(overlaps=is_hopper_or_later(device)), chain(overlaps=False).cpu())


def check_fp8(device: torch.device, rows: int) -> float:
    x, weight = torch.randn(rows, HIDDEN).to(BF16).to(device), fp8.quantise_weight(torch.randn(512, HIDDEN).to(device))
    values, scales = fp8.quantise_rows(x)
    wanted = reference.scaled_matmul(values.cpu(), scales.cpu(), weight.values.cpu(), weight.scales.cpu(), BF16)
    return relative_error(fp8.scaled_matmul(values, scales, weight), wanted)


def check_experts(device: torch.device, rows: int, *, in_four_bits: bool = False) -> float:
    """4 of 32 experts, every third row padded. The router's logits are given: rounded ones could nearly tie."""
    count, used, hidden, size = 32, 4, 512, 256
    logits, x = torch.randn(rows, count), torch.randn(rows, hidden).to(BF16)
    slots = torch.arange(rows).where(torch.arange(rows) % 3 < 2, -1)
    gate_up, down = torch.randn(count * 2 * size, hidden) / hidden**0.5, torch.randn(count * hidden, size) / size**0.5
    if in_four_bits:
        first, second = int4.quantise(gate_up), int4.quantise(down)
        gate_up, down = (reference.dequantise_int4(w.packed, w.scales, w.offsets) for w in (first, second))
        stacks = (moved_int4(first, device), moved_int4(second, device))
    else:
        gate_up, down = gate_up.to(BF16), down.to(BF16)
        stacks = (gate_up.to(device), down.to(device))
    moved, moved_slots = logits.to(device), slots.to(device)
    experts = GroupedExperts(lambda x: moved, stacks[0], stacks[1], count, used, shares_add_up=True)
    chosen, shares = (part.cpu() for part in choose(moved, used, shares_add_up=True, slots=moved_slots))
    wanted_experts = reference.choose_experts(logits, used, shares_add_up=True)[0]
    if not torch.equal(chosen, wanted_experts.where(slots[:, None] >= 0, -1)):
        return 1.0
    wanted = reference.experts(x, chosen, shares, gate_up.view(count, -1, hidden), down.view(count, -1, size))
    return relative_error(experts(x.to(device), moved_slots), wanted)


def check_sampling(device: torch.device) -> float:
    """The share of rows whose token differs from the reference's."""
    rows, vocabulary = 64, 128_256
    logits = torch.randn(rows, vocabulary) * 3
    top_p, top_k = torch.linspace(0.3, 1.0, rows), torch.arange(rows, dtype=torch.int32)
    ones, seeds = torch.ones(rows), torch.arange(rows)
    how = SamplingTensors(ones, top_k, top_p, ones * 0, seeds, top_k)
    moved = SamplingTensors(*(getattr(how, name).to(device) for name in how.__slots__))
    got = sample(logits.to(device), moved).tolist()
    wanted = [
        reference.sample(logits[row], 1.0, int(top_k[row]), float(top_p[row]), 0.0, row, int(top_k[row]))
        for row in range(rows)
    ]
    # A single row is split among the most programs: it must draw the same as among other rows.
    alone = SamplingTensors(*(getattr(moved, name)[-1:] for name in how.__slots__))
    got.append(sample(logits[-1:].to(device), alone, cuts=False).item())
    wanted.append(reference.sample(logits[-1], 1.0, 0, 1.0, 0.0, rows - 1, rows - 1))
    # A device's logarithm may differ in the last bit and turn a near tie; more than one row in 64 is a fault.
    different = sum(a != b for a, b in zip(got, wanted, strict=True))
    return different / rows / 2


NORMED, ADDED = "one row times a matrix, norm and silu", "one row times a matrix, residual"
EARLY = "one row times matrices, each beginning early"
FUSED_STEP, EARLY_STEP = "a captured step of seven launches a layer", "a captured step of launches that begin early"
# If one of these fails or hangs, models are measured without that way of computing a step of one row.
NEEDED: dict[OneRow, tuple[str, ...]] = {FUSED: (NORMED, ADDED, FUSED_STEP), OVERLAPPING: (EARLY, EARLY_STEP)}
CHECKS: dict[str, Callable[[torch.device], float]] = {
    "a captured step": lambda device: error_of_step(device, SEPARATE),
    "paged decode": check_decode,
    "paged decode, e4m3 cache": lambda device: check_decode(device, torch.float8_e4m3fn),
    "paged decode in one split": lambda device: check_decode(device, splits=1),
    "paged extend, sliding window": check_extend,
    "rms norm and residual": check_norm,
    "silu and multiply": check_silu_mul,
    "rotary, head norms": check_rope,
    "int4 times a vector": lambda device: check_int4(device, 1),
    "int4 times a matrix": lambda device: check_int4(device, 33),
    NORMED: lambda device: check_one_row(device, gates=True),
    ADDED: lambda device: check_one_row(device, gates=False),
    FUSED_STEP: lambda device: error_of_step(device, FUSED),
    "one row times an e4m3 matrix, norm and silu": check_one_row_of_e4m3,
    EARLY: check_overlapping,
    EARLY_STEP: lambda device: error_of_step(device, OVERLAPPING),
    "e4m3 times a vector": lambda device: check_fp8(device, 1),
    "e4m3 times a matrix": lambda device: check_fp8(device, 20),
    "experts, of few rows": lambda device: check_experts(device, 3),
    "experts, of many rows": lambda device: check_experts(device, 700),
    "experts in four bits": lambda device: check_experts(device, 33, in_four_bits=True),
    "sampling, half the share of tokens that differ": check_sampling,
}
