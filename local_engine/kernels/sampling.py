"""Temperature, top-k, top-p and min-p sampling on the device, without sorting and without a round trip to the host.

A filter keeps every token at or above a threshold, so only the threshold must be found: bisection over the 2^32 ordered
bit patterns of float32 finds the exact one in 16 passes, whatever the logits. Filters apply in the order top-k, top-p,
min-p, each to the distribution that the previous one left; tokens tied at a threshold are all kept, so the result does
not depend on their order.

Drawing uses the Gumbel trick: argmax of logit / temperature + noise. A token's noise depends only on (seed, position,
token), so a row draws the same token in any batch. It is exact up to float32 rounding and 32-bit uniforms: a token
below about 1e-9 of the most likely one's probability is never drawn, and every other probability has a relative error
of about 1e-6.

Several programs share a row's passes: the noise of a whole vocabulary keeps one multiprocessor busy for tens of
microseconds while all others wait. Each program finds its best token, and the best of those is drawn; a maximum does
not depend on order, so the number of programs changes no draw.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import ceil_divide, multiprocessors

# Tokens per iteration of a pass. Part of a seed's meaning: the noise of token t is word (t % BLOCK) // (BLOCK / 4) of
# counter t // BLOCK * (BLOCK / 4) + t % (BLOCK / 4).
BLOCK = tl.constexpr(4096)
# Maximum number of programs per row, and the approximate number resident on a multiprocessor.
MOST_PARTS = tl.constexpr(64)
PROGRAMS_PER_SM = 4
NO_TOKEN = tl.constexpr(2147483647)
LOWEST = tl.constexpr(-2147483648)


@dataclass(frozen=True, slots=True)
class SamplingTensors:
    """One entry per row of the batch, on the logits' device.

    temperature float32 (0: the most likely token, the lowest id among equals), top_k int32 (0: off), top_p float32 (1:
    off), min_p float32 (0: off), seed int64, position int32 (of the token being drawn, so that each draw has its own
    noise).
    """

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    min_p: Tensor
    seed: Tensor
    position: Tensor


@triton.jit
def _ordered(x):
    """Bits of float32 as int32 that compare like the floats."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _mass(
    row_ptr, vocabulary, threshold_1, threshold_2, threshold_3, peak, inverse_temperature, WEIGHTED: tl.constexpr
):
    """How many tokens (or how much unnormalised probability) are at or above each of three thresholds."""
    lane = tl.arange(0, BLOCK)
    mass_1 = tl.zeros([BLOCK], tl.float32)
    mass_2 = tl.zeros([BLOCK], tl.float32)
    mass_3 = tl.zeros([BLOCK], tl.float32)
    for first in tl.range(0, vocabulary, BLOCK, num_stages=4):
        inside = first + lane < vocabulary
        x = tl.load(row_ptr + first + lane, mask=inside, other=float("-inf")).to(tl.float32)
        weight = inside.to(tl.float32)
        if WEIGHTED:
            weight = tl.exp((x - peak) * inverse_temperature)
        key = _ordered(x)
        mass_1 += tl.where(key >= threshold_1, weight, 0.0)
        mass_2 += tl.where(key >= threshold_2, weight, 0.0)
        mass_3 += tl.where(key >= threshold_3, weight, 0.0)
    return tl.sum(mass_1, axis=0), tl.sum(mass_2, axis=0), tl.sum(mass_3, axis=0)


@triton.jit
def _highest_threshold(row_ptr, vocabulary, low, high, wanted, peak, inverse_temperature, WEIGHTED: tl.constexpr):
    """The highest key whose mass still reaches `wanted`; the mass at `low` must reach it, that at `high` must not."""
    while high - low > 1:
        step = tl.maximum((high - low) // 4, 1)
        key_1 = low + step
        key_2 = key_1 + step
        key_3 = key_2 + step
        mass_1, mass_2, mass_3 = _mass(
            row_ptr,
            vocabulary,
            key_1.to(tl.int32),
            key_2.to(tl.int32),
            key_3.to(tl.int32),
            peak,
            inverse_temperature,
            WEIGHTED,
        )
        if mass_3 >= wanted:
            low = key_3
        elif mass_2 >= wanted:
            low = key_2
            high = tl.minimum(high, key_3)
        elif mass_1 >= wanted:
            low = key_1
            high = tl.minimum(high, key_2)
        else:
            high = tl.minimum(high, key_1)
    return low


@triton.jit
def _gumbel(bits):
    """-log(-log(1 - u)) for u = (bits + 1/2) / 2^32, with full resolution for small u, which give the large noises."""
    high = (bits >> 16).to(tl.int32).to(tl.float32)
    low = (bits & 0xFFFF).to(tl.int32).to(tl.float32)
    u = high * 0.0000152587890625 + (low + 0.5) * 2.3283064365386963e-10
    series = u * (1.0 + u * (0.5 + u * 0.3333333333333333))
    # u rounds to 1 for the last few patterns, whose logarithm would be infinite.
    direct = -tl.log(tl.maximum(1.0 - u, 2.3283064365386963e-10))
    return -tl.log(tl.where(u < 0.0078125, series, direct))


@triton.jit
def _peak_kernel(logits_ptr, peaks_ptr, vocabulary, stride):
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    row_ptr = logits_ptr + row.to(tl.int64) * stride
    lane = tl.arange(0, BLOCK)
    peaks = tl.full([BLOCK], float("-inf"), tl.float32)
    for first in tl.range(part * BLOCK, vocabulary, parts * BLOCK):
        x = tl.load(row_ptr + first + lane, mask=first + lane < vocabulary, other=float("-inf")).to(tl.float32)
        peaks = tl.maximum(peaks, x)
    tl.store(peaks_ptr + row * parts + part, tl.max(peaks, axis=0))


@triton.jit
def _peak(peaks_ptr, row, parts):
    part = tl.arange(0, MOST_PARTS)
    return tl.max(tl.load(peaks_ptr + row * parts + part, mask=part < parts, other=float("-inf")), axis=0)


# The number of programs per row varies with the batch, and must not cause another compilation.
@triton.jit(do_not_specialize=["parts"])
def _threshold_kernel(
    logits_ptr, temperature_ptr, top_k_ptr, top_p_ptr, peaks_ptr, thresholds_ptr, vocabulary, stride, parts
):
    row = tl.program_id(0)
    row_ptr = logits_ptr + row.to(tl.int64) * stride
    temperature = tl.load(temperature_ptr + row)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    peak = _peak(peaks_ptr, row, parts)

    low = tl.full([], LOWEST, tl.int64)
    if temperature > 0.0:
        inverse_temperature = 1.0 / temperature
        high = _ordered(peak).to(tl.int64) + 1
        if (top_k > 0) & (top_k < vocabulary):
            low = _highest_threshold(row_ptr, vocabulary, low, high, top_k.to(tl.float32), peak, 1.0, False)
        if top_p < 1.0:
            kept = low.to(tl.int32)
            mass, _, _ = _mass(row_ptr, vocabulary, kept, kept, kept, peak, inverse_temperature, True)
            # The most likely token alone weighs 1, so a top_p of 0 keeps only it (and its equals).
            wanted = tl.maximum(top_p * mass, 1e-6)
            low = _highest_threshold(row_ptr, vocabulary, low, high, wanted, peak, inverse_temperature, True)
    tl.store(thresholds_ptr + row, low.to(tl.int32))


@triton.jit
def _draw_kernel(
    logits_ptr,
    temperature_ptr,
    min_p_ptr,
    seed_ptr,
    position_ptr,
    peaks_ptr,
    thresholds_ptr,
    scores_ptr,
    tokens_ptr,
    vocabulary,
    stride,
    HAS_THRESHOLDS: tl.constexpr,
):
    QUARTER: tl.constexpr = BLOCK // 4
    row, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    row_ptr = logits_ptr + row.to(tl.int64) * stride
    temperature = tl.load(temperature_ptr + row)
    seed = tl.load(seed_ptr + row)
    position = tl.load(position_ptr + row)
    min_p = tl.load(min_p_ptr + row)
    is_greedy = temperature <= 0.0
    inverse_temperature = 1.0 / tl.where(is_greedy, 1.0, temperature)
    peak = _peak(peaks_ptr, row, parts)
    threshold = tl.full([], LOWEST, tl.int32)
    if HAS_THRESHOLDS:
        threshold = tl.load(thresholds_ptr + row)
    if is_greedy:
        threshold = _ordered(peak)
    elif min_p > 0.0:
        threshold = tl.maximum(threshold, _ordered(peak + tl.log(min_p) * temperature))

    quarter = tl.arange(0, QUARTER)
    best = tl.full([QUARTER], float("-inf"), tl.float32)
    best_token = tl.full([QUARTER], NO_TOKEN, tl.int32)
    for first in tl.range(part * BLOCK, vocabulary, parts * BLOCK):
        counter = first // 4 + quarter
        words = tl.philox(seed, counter, counter * 0 + position, counter * 0, counter * 0)
        for word in tl.static_range(4):
            token = first + word * QUARTER + quarter
            x = tl.load(row_ptr + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
            noise = tl.where(is_greedy, 0.0, _gumbel(words[word]))
            score = tl.where(_ordered(x) >= threshold, (x - peak) * inverse_temperature + noise, float("-inf"))
            better = score > best
            best_token = tl.where(better, token, best_token)
            best = tl.where(better, score, best)
    winner = tl.max(best, axis=0)
    at = row * parts + part
    tl.store(scores_ptr + at, winner)
    tl.store(tokens_ptr + at, tl.min(tl.where(best == winner, best_token, NO_TOKEN), axis=0))


@triton.jit(do_not_specialize=["parts"])
def _choose_kernel(scores_ptr, tokens_ptr, out_ptr, vocabulary, parts):
    row = tl.program_id(0)
    part = tl.arange(0, MOST_PARTS)
    at = row * parts + part
    best = tl.load(scores_ptr + at, mask=part < parts, other=float("-inf"))
    tokens = tl.load(tokens_ptr + at, mask=part < parts, other=NO_TOKEN)
    chosen = tl.min(tl.where(best == tl.max(best, axis=0), tokens, NO_TOKEN), axis=0)
    # A row of NaN has no winner, and a token outside the vocabulary would fault the device in the embedding.
    tl.store(out_ptr + row, tl.minimum(chosen, vocabulary - 1).to(tl.int64))


def parts_of_a_row(rows: int, vocabulary: int, device: torch.device) -> int:
    """Programs per row, such that all rows together fill the device."""
    wanted = ceil_divide(PROGRAMS_PER_SM * multiprocessors(device), rows)
    return min(wanted, ceil_divide(vocabulary, BLOCK.value), MOST_PARTS.value)


def sample(logits: Tensor, how: SamplingTensors, out: Tensor | None = None, *, cuts: bool = True) -> Tensor:
    """Token ids int64 [batch] drawn from logits [batch, vocabulary] (float32 or bfloat16, columns contiguous), written
    to `out` if given.

    Without `cuts` no row may have a top_k or a top_p, which saves a launch. Penalties, biases and grammar masks (-inf)
    must already be applied; a row of only -inf or NaN gives an arbitrary token of the vocabulary.
    """
    batch, vocabulary = logits.shape
    device, stride = logits.device, logits.stride(0)
    parts = parts_of_a_row(batch, vocabulary, device)
    chosen = torch.empty(batch, dtype=torch.int64, device=device) if out is None else out
    peaks, scores = (torch.empty((batch, parts), dtype=torch.float32, device=device) for _ in range(2))
    tokens = torch.empty((batch, parts), dtype=torch.int32, device=device)
    _peak_kernel[(batch, parts)](logits, peaks, vocabulary, stride, num_warps=8)
    thresholds = tokens
    if cuts:
        thresholds = torch.empty(batch, dtype=torch.int32, device=device)
        _threshold_kernel[(batch,)](
            logits,
            how.temperature,
            how.top_k,
            how.top_p,
            peaks,
            thresholds,
            vocabulary,
            stride,
            parts,
            num_warps=16,
        )
    _draw_kernel[(batch, parts)](
        logits,
        how.temperature,
        how.min_p,
        how.seed,
        how.position,
        peaks,
        thresholds,
        scores,
        tokens,
        vocabulary,
        stride,
        HAS_THRESHOLDS=cuts,
        num_warps=8,
    )
    _choose_kernel[(batch,)](scores, tokens, chosen, vocabulary, parts, num_warps=1)
    return chosen
