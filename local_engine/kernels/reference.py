"""What each kernel must compute, in plain torch and float32: slow, short, and the reference of every kernel's test.
Knows no triton."""

import math

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(norm(x + residual), x + residual); the sum is rounded to the residual's type before the norm, as the kernel
    stores it."""
    total = (x.float() + residual.float()).to(residual.dtype)
    return rms_norm(total, weight, eps).to(x.dtype), total


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(first half of the columns) * second half."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [tokens, heads, dim] by cos and sin [tokens, dim / 2], halves paired (not neighbours)."""
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos.float()[:, None, :], sin.float()[:, None, :]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def store_kv(cache: Tensor, slots: Tensor, values: Tensor) -> None:
    """Writes values [tokens, kv_heads, dim] into cache [blocks, block_size, kv_heads, dim]; slots of -1 are skipped."""
    kept = slots >= 0
    stored = values[kept].float()
    if cache.dtype == torch.float8_e4m3fn:
        largest = torch.finfo(cache.dtype).max
        stored = stored.clamp(-largest, largest)
    cache.view(-1, *cache.shape[2:])[slots[kept]] = stored.to(cache.dtype)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_table: Tensor,
    seq_lens: Tensor,
    cu_seqlens_q: Tensor,
    *,
    scale: float,
    window: int = 0,
) -> Tensor:
    """Causal attention of the last rows of each sequence over its paged cache.

    q [total_tokens, heads, dim]; seq_lens count the tokens in the cache including current ones; window 0 means all of
    them, otherwise a query at position p sees positions p - window + 1 to p.
    """
    out = torch.zeros_like(q)
    group = q.shape[1] // k_cache.shape[2]
    for row in range(len(seq_lens)):
        start, end, length = int(cu_seqlens_q[row]), int(cu_seqlens_q[row + 1]), int(seq_lens[row])
        if start == end or length == 0:
            continue
        k = gather_sequence(k_cache, block_table[row], length).float()
        v = gather_sequence(v_cache, block_table[row], length).float()
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q[start:end].float(), k) * scale
        positions = torch.arange(length - (end - start), length)[:, None]
        keys = torch.arange(length)[None, :]
        seen = keys <= positions
        if window:
            seen &= keys > positions - window
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        out[start:end] = torch.einsum("hqk,khd->qhd", weights, v).to(q.dtype)
    return out


def gather_sequence(cache: Tensor, blocks: Tensor, length: int) -> Tensor:
    """The first `length` rows of one sequence, [length, kv_heads, dim], from its blocks."""
    block_size = cache.shape[1]
    used = blocks[: -(-length // block_size)].long()
    return cache[used].reshape(-1, *cache.shape[2:])[:length]


def dequantise_int4(packed: Tensor, scales: Tensor, offsets: Tensor) -> Tensor:
    """Weights [rows, columns] float32 from nibbles packed as in `int4.pack`: nibble * scale + offset, one pair per
    group."""
    rows, half = packed.shape
    sixteen = packed.view(rows, half // 16, 16)
    nibbles = torch.cat([sixteen & 0xF, sixteen >> 4], dim=-1).reshape(rows, scales.shape[1], -1).float()
    return (nibbles * scales.float()[..., None] + offsets.float()[..., None]).reshape(rows, 2 * half)


def int4_matmul(x: Tensor, packed: Tensor, scales: Tensor, offsets: Tensor) -> Tensor:
    return (x.float() @ dequantise_int4(packed, scales, offsets).T).to(x.dtype)


def quantise_rows_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    """(e4m3 [rows, columns], float32 scales [rows, 1]) with x ≈ values * scale; a row of zeros has scale 1."""
    largest = torch.finfo(torch.float8_e4m3fn).max
    peak = x.float().abs().amax(-1, keepdim=True)
    scale = torch.where(peak > 0, peak / largest, 1.0)
    return (x.float() / scale).clamp(-largest, largest).to(torch.float8_e4m3fn), scale


def scaled_matmul(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """(a * a_scale) @ (b * b_scale).T, for a [m, k], b [n, k] in e4m3 and scales [m, 1], [n, 1]."""
    return ((a.float() * a_scale) @ (b.float() * b_scale).T).to(dtype)


def sampling_noise(seed: int, position: int, vocabulary: int) -> Tensor:
    """The Gumbel noise [vocabulary] of one draw: Philox-4x32-10, with counters and words arranged as in
    kernels/sampling.py."""
    block = 4096
    quarter = block // 4
    blocks = -(-vocabulary // block)
    words = philox_words(seed, torch.arange(blocks * quarter), position)
    bits = words.view(4, blocks, quarter).transpose(0, 1).reshape(-1)[:vocabulary]
    uniform = (bits.double() + 0.5) * 2.0**-32
    return -torch.log(-torch.log1p(-uniform)).float()


def philox_words(seed: int, counters: Tensor, second_counter: int) -> Tensor:
    """Four rows of 32 random bits (as int64) for counters (c, second_counter, 0, 0) under the 64-bit key `seed`."""
    mask = 0xFFFFFFFF
    c0, c1 = counters & mask, torch.full_like(counters, second_counter & mask)
    c2, c3 = torch.zeros_like(counters), torch.zeros_like(counters)
    k0, k1 = seed & mask, (seed >> 32) & mask
    for _ in range(10):
        high_0, low_0 = multiply_32(c0, 0xD2511F53)
        high_2, low_2 = multiply_32(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high_2 ^ c1 ^ k0, low_2, high_0 ^ c3 ^ k1, low_0
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return torch.stack([c0, c1, c2, c3])


def multiply_32(a: Tensor, b: int) -> tuple[Tensor, Tensor]:
    """(high, low) 32 bits of the product of unsigned 32-bit numbers held in int64, which wraps around at 64 bits."""
    product = a * b
    return (product >> 32) & 0xFFFFFFFF, product & 0xFFFFFFFF


def keep_likely(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> Tensor:
    """Which tokens of one row survive top-k, then top-p, then min-p; ties at a threshold survive together."""
    kept = torch.ones_like(logits, dtype=torch.bool)
    if 0 < top_k < len(logits):
        kept &= logits >= logits.topk(top_k).values[-1]
    if top_p < 1:
        weights = torch.where(kept, (logits.double() / temperature).softmax(-1), 0.0)
        order = logits.argsort(descending=True, stable=True)
        reached = (weights[order].cumsum(-1) >= top_p * weights.sum()).nonzero()[0]
        kept &= logits >= logits[order[reached]]
    if min_p > 0:
        kept &= logits >= logits.max() + math.log(min_p) * temperature
    return kept


def sample(logits: Tensor, temperature: float, top_k: int, top_p: float, min_p: float, seed: int, position: int) -> int:
    """One draw from one row of float32 logits, as kernels/sampling.py defines it."""
    if temperature <= 0:
        return int((logits == logits.max()).nonzero()[0])
    kept = keep_likely(logits, temperature, top_k, top_p, min_p)
    scores = logits / temperature + sampling_noise(seed, position, len(logits))
    return int(scores.masked_fill(~kept, -math.inf).argmax())


def choose_experts(logits: Tensor, used: int, *, shares_add_up: bool) -> tuple[Tensor, Tensor]:
    """(experts, weights), both [rows, used], from a router's logits: the most likely, the first of equals first, in
    ascending order."""
    likely = logits.float().softmax(-1)
    chosen = logits.float().argsort(dim=-1, descending=True, stable=True)[:, :used].sort(dim=-1).values
    shares = likely.gather(1, chosen)
    return chosen.int(), shares / shares.sum(-1, keepdim=True) if shares_add_up else shares


def experts(x: Tensor, chosen: Tensor, shares: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Rows [rows, hidden] through their experts, [experts, 2 * size, hidden] and [experts, hidden, size]; rows with
    experts of -1 become zeros."""
    out = torch.zeros(x.shape, dtype=torch.float32)
    for row, place in (chosen >= 0).nonzero().tolist():
        expert = int(chosen[row, place])
        gated = silu_mul((x[row].float() @ gate_up[expert].float().T).to(x.dtype))
        out[row] += (gated.float() @ down[expert].float().T).to(x.dtype).float() * shares[row, place]
    return out.to(x.dtype)
