"""Matrices as the native decoder reads them: int8 in panels of 16 outputs, with the C structures that point at them."""

import ctypes
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from local_engine.layers.int8_linear import quantise_rows

LANES = 16


class CMatrix(ctypes.Structure):
    """`Matrix` of int8_decoder.cpp."""

    _fields_ = (
        ("packed", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("k", ctypes.c_long),
        ("n", ctypes.c_long),
    )


class CLayer(ctypes.Structure):
    """`Layer` of int8_decoder.cpp."""

    _fields_ = (
        ("qkv", CMatrix),
        ("output", CMatrix),
        ("gate_up", CMatrix),
        ("down", CMatrix),
        ("input_norm", ctypes.c_void_p),
        ("feed_forward_norm", ctypes.c_void_p),
        ("query_norm", ctypes.c_void_p),
        ("key_norm", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class CModel(ctypes.Structure):
    """`Model` of int8_decoder.cpp."""

    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("layer_count", ctypes.c_long),
        ("hidden", ctypes.c_long),
        ("intermediate", ctypes.c_long),
        ("heads", ctypes.c_long),
        ("kv_heads", ctypes.c_long),
        ("head_size", ctypes.c_long),
        ("epsilon", ctypes.c_float),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("threads", ctypes.c_long),
    )


class CStep(ctypes.Structure):
    """`Step` of int8_decoder.cpp."""

    _fields_ = (
        ("rows", ctypes.c_long),
        ("positions", ctypes.c_void_p),
        ("sequences", ctypes.c_void_p),
        ("block_table", ctypes.c_void_p),
        ("table_stride", ctypes.c_long),
    )


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """uint8 [panels, k / 4, 16, 4] holding int8 + 128; scales and bias float32, padded to whole panels."""

    packed: torch.Tensor
    scales: torch.Tensor
    bias: torch.Tensor | None
    outputs: int

    def c_matrix(self) -> CMatrix:
        """Pointers into this object, which must outlive them."""
        return CMatrix(
            packed=self.packed.data_ptr(),
            scales=self.scales.data_ptr(),
            bias=self.bias.data_ptr() if self.bias is not None else None,
            k=4 * self.packed.shape[1],
            n=self.outputs,
        )


def pack(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedMatrix:
    """A float32 matrix [outputs, k], k a multiple of 4."""
    outputs, k = weight.shape
    padding = -outputs % LANES
    quantised, scales = quantise_rows(weight)
    panels = F.pad((quantised.to(torch.int16) + 128).to(torch.uint8), (0, 0, 0, padding)).view(-1, LANES, k // 4, 4)
    return PackedMatrix(
        packed=panels.transpose(1, 2).contiguous(),
        scales=F.pad(scales, (0, padding)).contiguous(),
        bias=None if bias is None else F.pad(bias, (0, padding)).contiguous(),
        outputs=outputs,
    )
