"""Weights rounded to bytes in plain torch, as the native decoder's packing must do, to the bit."""

import torch

from local_engine.loading.weights import BLOCK
from local_engine.native.packed import LANES


def quantise_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 values [rows, k] and one scale per block of 32 [rows, k / 32], rounded to float16 before it is used."""
    blocks = weight.unflatten(1, (-1, BLOCK))
    scales = (blocks.abs().amax(dim=-1) / 127.0).half().float()
    values = (blocks / scales.clamp(min=2.0**-24)[..., None]).round().clamp(-127, 127).to(torch.int8)
    return values.flatten(1), scales


def packed_bytes(weight: torch.Tensor) -> torch.Tensor:
    """Panels of 16 outputs: per block scales, offsets, and values plus 128 in steps of four inputs."""
    values, scales = quantise_blocks(weight)
    unsigned = (values.to(torch.int16) + 128).to(torch.uint8)
    steps = _panels(unsigned.view(torch.int32)).contiguous().view(torch.uint8).unflatten(1, (-1, BLOCK // 4))
    return torch.cat((_halves(scales), _halves(-128.0 * scales), steps.flatten(2)), dim=-1)


def _panels(matrix: torch.Tensor) -> torch.Tensor:
    padded = torch.nn.functional.pad(matrix, (0, 0, 0, -matrix.shape[0] % LANES))
    return padded.unflatten(0, (-1, LANES)).transpose(1, 2)


def _halves(scales: torch.Tensor) -> torch.Tensor:
    return _panels(scales).contiguous().half().view(torch.uint8)
