"""Matrices in the native decoder's format, panels of 16 outputs, and the C structures that point to them."""

import ctypes
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional as F

from local_engine.loading.weights import BLOCK, NibbleBlocks, ScaledBlocks
from local_engine.native.build import load_decoder

LANES: Final = 16
# `Format` of tiles.h.
BYTES, NIBBLES, FLOATS, HALVES, BRAINS, SCALED_BYTES, SCALED_SHORT, SCALED_NIBBLES = range(8)
# `kByteBlock` of tiles.h: scales and offsets, then values.
BYTE_BLOCK: Final = 4 * LANES + BLOCK * LANES
# Values checked before the whole matrix is.
GLANCE: Final = 1024


class CMatrix(ctypes.Structure):
    """`Matrix` of tiles.h."""

    _fields_ = (
        ("packed", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("k", ctypes.c_long),
        ("n", ctypes.c_long),
        ("format", ctypes.c_long),
    )


class CExpert(ctypes.Structure):
    """`Expert` of decoder.cpp."""

    _fields_ = (("gate_up", CMatrix), ("down", CMatrix))


class CLayer(ctypes.Structure):
    """`Layer` of decoder.cpp."""

    _fields_ = (
        ("qkv", CMatrix),
        ("output", CMatrix),
        ("gate_up", CMatrix),
        ("down", CMatrix),
        ("router", CMatrix),
        ("experts", ctypes.c_void_p),
        ("input_norm", ctypes.c_void_p),
        ("feed_forward_norm", ctypes.c_void_p),
        ("attention_norm", ctypes.c_void_p),
        ("end_norm", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("window", ctypes.c_long),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class CModel(ctypes.Structure):
    """`Model` of decoder.cpp."""

    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("layer_count", ctypes.c_long),
        ("hidden", ctypes.c_long),
        ("intermediate", ctypes.c_long),
        ("experts", ctypes.c_long),
        ("experts_used", ctypes.c_long),
        ("expert_size", ctypes.c_long),
        ("shares_add_up", ctypes.c_long),
        ("is_gelu", ctypes.c_long),
        ("norms_all_heads", ctypes.c_long),
        ("heads", ctypes.c_long),
        ("kv_heads", ctypes.c_long),
        ("head_size", ctypes.c_long),
        ("window", ctypes.c_long),
        ("epsilon", ctypes.c_float),
        ("attention_scale", ctypes.c_float),
        ("threads", ctypes.c_long),
    )


class CStep(ctypes.Structure):
    """`Step` of attention.h."""

    _fields_ = (
        ("rows", ctypes.c_long),
        ("positions", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("block_table", ctypes.c_void_p),
        ("table_stride", ctypes.c_long),
    )


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """Panels in one of the formats in tiles.h; the bias is float32, padded to whole panels."""

    packed: torch.Tensor
    bias: torch.Tensor | None
    inputs: int
    outputs: int
    format: int

    def c_matrix(self) -> CMatrix:
        """Pointers into this object, which must outlive them."""
        return CMatrix(
            packed=self.packed.data_ptr(),
            bias=self.bias.data_ptr() if self.bias is not None else None,
            k=self.inputs,
            n=self.outputs,
            format=self.format,
        )


def pack_float(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedMatrix:
    """A float32 matrix [outputs, k], stored exactly, in 16 bits if those suffice."""
    if _fits(weight, torch.bfloat16):
        return _packed(_words(weight.bfloat16()), weight, bias, BRAINS)
    if _fits(weight, torch.float16):
        return _packed(_panels(weight.half()), weight, bias, HALVES)
    return _packed(_panels(weight), weight, bias, FLOATS)


def pack_scaled(weight: ScaledBlocks, bias: torch.Tensor | None) -> PackedMatrix:
    """A quantised matrix, multiplied in float32."""
    low, high = weight.values[:, ::2], weight.values[:, 1::2]
    words = _words(low | high << 4 if weight.bits == 4 else weight.values)
    values = words.unflatten(1, (weight.scales.shape[1], -1)).flatten(2)
    headers = (_panels(part.float()).contiguous().view(torch.int32) for part in (weight.scales, weight.offsets))
    in_eight_bits = SCALED_BYTES if weight.block == BLOCK else SCALED_SHORT
    kind = SCALED_NIBBLES if weight.bits == 4 else in_eight_bits
    return _packed(torch.cat((*headers, values), dim=-1), weight.values, bias, kind)


def pack_bytes(weight: torch.Tensor, bias: torch.Tensor | None, library: ctypes.CDLL | None = None) -> PackedMatrix:
    """A float32 matrix [outputs, k] in 8 bits: int8 values and one scale per block of 32, rounded to float16 before
    use. One already rounded so (GGUF's Q8_0) is kept exactly."""
    outputs, inputs = weight.shape
    weight = weight.contiguous()
    panels = torch.zeros(-(-outputs // LANES), inputs // BLOCK, BYTE_BLOCK, dtype=torch.uint8)
    library = library or load_decoder()
    assert library is not None, "ask can_run first"
    library.breakeven_pack_bytes(
        ctypes.c_void_p(weight.data_ptr()),
        ctypes.c_void_p(panels.data_ptr()),
        ctypes.c_long(inputs),
        ctypes.c_long(outputs),
        ctypes.c_long(torch.get_num_threads()),
    )
    return _packed(panels, weight, bias, BYTES)


def pack_nibbles(weight: NibbleBlocks, bias: torch.Tensor | None) -> PackedMatrix:
    """A 4-bit matrix, with scales and offsets rounded to float16 if necessary."""
    low, high = _steps(weight.values).chunk(2, dim=2)
    blocks = torch.cat((_halves(weight.scales), _halves(weight.offsets), (low | high << 4).flatten(2)), dim=-1)
    return _packed(blocks, weight.values, bias, NIBBLES)


def _panels(matrix: torch.Tensor) -> torch.Tensor:
    """[outputs, k] as [panels, k, 16], padded with zeros."""
    return F.pad(matrix, (0, 0, 0, -matrix.shape[0] % LANES)).unflatten(0, (-1, LANES)).transpose(1, 2)


def _steps(values: torch.Tensor) -> torch.Tensor:
    """Bytes [outputs, k] as [panels, blocks, steps of four inputs, outputs and inputs]."""
    fours = _panels(values.contiguous().view(torch.int32)).contiguous()
    return fours.view(torch.uint8).unflatten(1, (-1, BLOCK // 4))


def _fits(weight: torch.Tensor, narrow: torch.dtype) -> bool:
    glance = weight.view(-1)[:GLANCE]
    return all(torch.equal(values.to(narrow).float(), values) for values in (glance, weight))


def _words(matrix: torch.Tensor) -> torch.Tensor:
    """[outputs, k] of less than 32 bits as [panels, 32-bit words, 16]."""
    return _panels(matrix.contiguous().view(torch.int32))


def _halves(scales: torch.Tensor) -> torch.Tensor:
    """[outputs, blocks] as bytes of float16, [panels, blocks, 32]."""
    return _panels(scales).contiguous().half().view(torch.uint8)


def _packed(panels: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, kind: int) -> PackedMatrix:
    outputs, inputs = weight.shape
    padded = None if bias is None else F.pad(bias, (0, -outputs % LANES)).contiguous()
    return PackedMatrix(panels.contiguous(), padded, inputs, outputs, kind)
