"""GGUF's quantised matrices as stored: values, scales and offsets. Knows layouts; no names.

All are obtained by gguf's own dequantisation: with every scale set to one it gives the values, with every value set to
one the scales, and with every value set to zero the offsets.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.gguf_nibbles import READERS as NIBBLES
from local_engine.loading.gguf_nibbles import nibbles_of
from local_engine.loading.weights import BLOCK, ScaledBlocks

HALF_ONE, HALF_ZERO = b"\x00\x3c", b"\x00\x00"
WEIGHTS_AT_ONCE: Final = 1 << 16
"""Few enough that what is dequantised on the way stays in the processor's cache: fresh memory for a whole embedding,
four bytes per weight and several times over, took a fifth of an engine's start."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A block's bytes: what to write where, as (first byte, bytes), so that scales or values become one or zero.

    `lowest` is the smallest value; `minima` sets the offsets that a type stores beside its scales to zero, `zeros` the
    values; types with signed values store no offsets.
    """

    scales: int
    lowest: int
    unit_scales: tuple[tuple[int, bytes], ...]
    ones: tuple[tuple[int, bytes], ...]
    minima: tuple[tuple[int, bytes], ...] = ()
    zeros: tuple[tuple[int, bytes], ...] = ()


KINDS: Final = GGMLQuantizationType
LAYOUTS: Final[dict[GGMLQuantizationType, Layout]] = {
    # scale, 32 values
    KINDS.Q8_0: Layout(1, -128, ((0, HALF_ONE),), ((2, b"\x01" * 32),)),
    # scale, fifth bits, nibbles
    KINDS.Q5_0: Layout(1, -16, ((0, HALF_ONE),), ((2, b"\xff" * 4 + b"\x11" * 16),)),
    KINDS.Q5_1: Layout(
        1, 0, ((0, HALF_ONE),), ((4, b"\x00" * 4 + b"\x11" * 16),), ((2, HALF_ZERO),), ((4, b"\x00" * 20),)
    ),
    # scale and minimum of the whole block, 8 scales and 8 minima of 6 bits in 12 bytes, fifth bits, nibbles
    KINDS.Q5_K: Layout(
        8,
        0,
        ((0, HALF_ONE), (4, b"\x01" * 4 + b"\x00" * 4 + b"\x01" * 4)),
        ((16, b"\x00" * 32 + b"\x11" * 128),),
        ((2, HALF_ZERO),),
        ((16, b"\x00" * 160),),
    ),
    # nibbles, bits 5 and 6, 16 scales, the block's scale
    KINDS.Q6_K: Layout(16, -32, ((192, b"\x01" * 16 + HALF_ONE),), ((0, b"\x11" * 128 + b"\xaa" * 64),)),
    # 16 scales and minima of 4 bits, values of 2 bits, the block's scale and minimum
    KINDS.Q2_K: Layout(
        16,
        0,
        ((0, b"\x01" * 16), (80, HALF_ONE)),
        ((16, b"\x55" * 64),),
        ((82, HALF_ZERO),),
        ((16, b"\x00" * 64),),
    ),
    # third bits, values of 2 bits, 16 scales of 6 bits, the block's scale
    KINDS.Q3_K: Layout(16, -4, ((96, b"\x11" * 8 + b"\xaa" * 4 + HALF_ONE),), ((0, b"\xff" * 32 + b"\x55" * 64),)),
    # scale, nibbles that index a table; entry 8 is one
    KINDS.IQ4_NL: Layout(1, -128, ((0, HALF_ONE),), ((2, b"\x88" * 16),)),
    # the block's scale, 8 scales of 6 bits, nibbles as before
    KINDS.IQ4_XS: Layout(8, -128, ((0, HALF_ONE + b"\xaa" * 2 + b"\x11" * 4),), ((8, b"\x88" * 128),)),
    # scale, a power of two, nibbles that index a table; entry 1 is one
    KINDS.MXFP4: Layout(1, -16, ((0, b"\x80"),), ((1, b"\x11" * 16),)),
}


def blocks_of(tensor: GgufTensor) -> ScaledBlocks | None:
    """The matrix, or None for 16 bits or more, or for a type whose weights are not scaled values."""
    if len(tensor.shape) != 2:
        return None
    nibbles = nibbles_of(tensor)
    if nibbles is not None:
        return ScaledBlocks(nibbles.values, nibbles.scales, nibbles.offsets, bits=4)
    layout = LAYOUTS.get(tensor.kind)
    if layout is None:
        return None
    rows, inputs = tensor.shape
    group = GGML_QUANT_SIZES[tensor.kind][0] // layout.scales
    values = np.empty((rows, inputs), np.uint8)
    scales, offsets = (np.empty((rows, inputs // group), np.float32) for _ in range(2))
    step = max(1, WEIGHTS_AT_ONCE // inputs)
    for part in (slice(first, first + step) for first in range(0, rows, step)):
        raw = np.asarray(tensor.raw[part])
        values[part] = _written(raw, tensor.kind, layout.unit_scales + layout.minima) - layout.lowest
        scales[part] = _written(raw, tensor.kind, layout.ones + layout.minima)[:, ::group]
        if layout.zeros:
            offsets[part] = _written(raw, tensor.kind, layout.zeros)[:, ::group]
        else:
            offsets[part] = scales[part] * layout.lowest
    return ScaledBlocks(torch.from_numpy(values), torch.from_numpy(scales), torch.from_numpy(offsets), bits=8)


def bytes_per_weight(kind: GGMLQuantizationType) -> float:
    """Size of a weight of this type when kept for products in float32."""
    if kind in NIBBLES:
        return 0.5 + 8 / BLOCK
    layout = LAYOUTS.get(kind)
    if layout is None:
        return 2.0 if kind in (KINDS.F16, KINDS.BF16) else 4.0
    return 1.0 + 8 * layout.scales / GGML_QUANT_SIZES[kind][0]


def _written(raw: np.ndarray, kind: GGMLQuantizationType, fields: tuple[tuple[int, bytes], ...]) -> np.ndarray:
    """The weights of these rows of bytes after replacing some bytes in each block."""
    raw = raw.copy()
    blocks = raw.reshape(-1, GGML_QUANT_SIZES[kind][1])
    for first, written in fields:
        blocks[:, first : first + len(written)] = np.frombuffer(written, np.uint8)
    # gguf processes sixteen rows at a time: by blocks, its loop took two thirds of an engine's start.
    return dequantize(raw, kind)
