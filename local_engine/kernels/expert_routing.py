"""Determines and lays out which experts compute which rows, on the device: nothing goes to the host, and sizes depend
only on the number of rows, so that steps with experts can be captured.

A pair is a row and one of its experts, numbered row by row. A tile is up to `height` pairs of one expert.
"""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# Kernel bodies are written in Triton's language, whose types are not Python's.

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import ceil_divide, next_power_of_2

# Pairs that a program examines at once; more for prompts, which have many, to save iterations.
PAIRS, MANY_PAIRS = 1024, 4096
LEAST = tl.constexpr(-3e38)
COLUMNS = 1024


@dataclass(frozen=True, slots=True)
class Tiles:
    """experts int32 [tiles], -1 for unused tiles; pairs int32 [tiles, height], -1 after an expert's last one; number of
    experts."""

    experts: Tensor
    pairs: Tensor
    count: int

    @property
    def height(self) -> int:
        return self.pairs.shape[1]


@triton.jit
def _choose_expert_kernel(
    logits_ptr,
    slots_ptr,
    chosen_ptr,
    shares_ptr,
    experts,
    HAS_SLOTS: tl.constexpr,
    USED: tl.constexpr,
    ADDS_UP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0)
    number = tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + row.to(tl.int64) * experts + number, mask=number < experts, other=0.0).to(tl.float32)
    # Whatever a row contains, even NaN, it selects exactly `USED` experts, all of them valid.
    logits = tl.where(logits > LEAST, logits, LEAST)
    logits = tl.where(number < experts, logits, float("-inf"))
    weights = tl.exp(logits - tl.max(logits, axis=0))
    taken = tl.zeros([BLOCK], tl.int32)
    whole = 0.0
    for _ in tl.static_range(USED):
        left = tl.where(taken > 0, float("-inf"), logits)
        best = tl.min(tl.where(left == tl.max(left, axis=0), number, BLOCK), axis=0)
        taken = tl.where(number == best, 1, taken)
        whole += tl.sum(tl.where(number == best, weights, 0.0), axis=0)
    if not ADDS_UP:
        whole = tl.sum(weights, axis=0)
    # In ascending order, the order in which they are summed.
    at = row * USED + tl.cumsum(taken, axis=0) - 1
    if HAS_SLOTS:
        number = tl.where(tl.load(slots_ptr + row) >= 0, number, -1)
    tl.store(chosen_ptr + at, number, mask=taken > 0)
    tl.store(shares_ptr + at, weights / whole, mask=taken > 0)


def choose(logits: Tensor, used: int, *, shares_add_up: bool, slots: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(experts int32, weights float32), both [rows, used], from a router's logits [rows, experts]: the most likely, the
    first of equals first, in ascending order. A row with slot -1 has none: its experts are -1."""
    rows, experts = logits.shape
    chosen = torch.empty((rows, used), dtype=torch.int32, device=logits.device)
    shares = torch.empty((rows, used), dtype=torch.float32, device=logits.device)
    _choose_expert_kernel[(rows,)](
        logits,
        logits if slots is None else slots,
        chosen,
        shares,
        experts,
        HAS_SLOTS=slots is not None,
        USED=used,
        ADDS_UP=shares_add_up,
        BLOCK=next_power_of_2(experts),
        num_warps=1,
    )
    return chosen, shares


@triton.jit(do_not_specialize=["pairs", "tiles"])
def _lay_out_kernel(
    chosen_ptr,
    tile_experts_ptr,
    tile_pairs_ptr,
    pairs,
    experts,
    tiles,
    HEIGHT: tl.constexpr,
    EXPERTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One program per expert, and one for the unused tiles. Each counts all pairs itself."""
    expert = tl.program_id(0)
    number = tl.arange(0, EXPERTS)
    lane = tl.arange(0, BLOCK)
    counts = tl.zeros([EXPERTS], tl.int32)
    for first in range(0, pairs, BLOCK):
        chosen = tl.load(chosen_ptr + first + lane, mask=first + lane < pairs, other=-1)
        counts += tl.histogram(tl.where(chosen < 0, EXPERTS - 1, chosen), EXPERTS)
    # The last bin belongs to no expert: it counts pairs without one.
    needed = tl.where(number < experts, (counts + HEIGHT - 1) // HEIGHT, 0)
    start = tl.sum(tl.where(number < expert, needed, 0), axis=0)
    if expert == experts:
        for first in range(start, tiles, BLOCK):
            tl.store(tile_experts_ptr + first + lane, -1, mask=first + lane < tiles)
        return
    end = start + tl.sum(tl.where(number == expert, needed, 0), axis=0)
    for first in range(start, end, BLOCK):
        tl.store(tile_experts_ptr + first + lane, expert, mask=first + lane < end)
    at = start * HEIGHT
    for first in range(0, pairs, BLOCK):
        chosen = tl.load(chosen_ptr + first + lane, mask=first + lane < pairs, other=-1)
        is_mine = (chosen == expert).to(tl.int32)
        tl.store(tile_pairs_ptr + at + tl.cumsum(is_mine, axis=0) - 1, first + lane, mask=is_mine > 0)
        at += tl.sum(is_mine, axis=0)
    behind = at + tl.arange(0, HEIGHT)
    tl.store(tile_pairs_ptr + behind, -1, mask=behind < end * HEIGHT)


def lay_out(chosen: Tensor, experts: int, height: int) -> Tiles:
    """Tiles over the pairs of `chosen` [rows, used], expert by expert, each one's pairs in order."""
    pairs = chosen.numel()
    tiles = most_tiles(pairs, experts, height)
    tile_experts = torch.empty(tiles, dtype=torch.int32, device=chosen.device)
    tile_pairs = torch.empty((tiles, height), dtype=torch.int32, device=chosen.device)
    _lay_out_kernel[(experts + 1,)](
        chosen,
        tile_experts,
        tile_pairs,
        pairs,
        experts,
        tiles,
        HEIGHT=height,
        EXPERTS=next_power_of_2(experts + 1),
        BLOCK=PAIRS if pairs < 8 * PAIRS else MANY_PAIRS,
        num_warps=4 if pairs < 8 * PAIRS else 8,
    )
    return Tiles(tile_experts, tile_pairs, experts)


def most_tiles(pairs: int, experts: int, height: int) -> int:
    """An upper bound on the tiles needed, however pairs are distributed: each expert in use may have one partly filled
    tile."""
    in_use = min(pairs, experts)
    return in_use + (pairs - in_use) // height


@triton.jit
def _add_up_kernel(x_ptr, chosen_ptr, shares_ptr, out_ptr, columns, USED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.zeros([BLOCK], tl.float32)
    for place in tl.static_range(USED):
        pair = row * USED + place
        is_there = tl.load(chosen_ptr + pair) >= 0
        value = tl.load(x_ptr + pair * columns + column, mask=inside & is_there, other=0.0).to(tl.float32)
        total += value * tl.where(is_there, tl.load(shares_ptr + pair), 0.0)
    tl.store(out_ptr + row * columns + column, total.to(out_ptr.dtype.element_ty), mask=inside)


def add_up(x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """[rows, columns] from the pairs' results [rows * used, columns]: each row's results, weighted and summed."""
    rows, used = chosen.shape
    columns = x.shape[1]
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    block = min(COLUMNS, next_power_of_2(columns))
    _add_up_kernel[(rows, ceil_divide(columns, block))](
        x, chosen, shares, out, columns, USED=used, BLOCK=block, num_warps=4
    )
    return out
