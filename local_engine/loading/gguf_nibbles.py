"""GGUF's 4-bit matrices as stored: values, scales and offsets in blocks of 32. Knows layouts; no names."""

from collections.abc import Callable
from typing import Final

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import Q4_K

from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.weights import BLOCK, NibbleBlocks

HALF: Final = 2
# Q4_K: two float16, then 8 scales and 8 minima of 6 bits in 12 bytes, for 8 blocks.
K_SCALES: Final = 12
K_BLOCKS: Final = 8

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]


def nibbles_of(tensor: GgufTensor) -> NibbleBlocks | None:
    """The matrix, or None if it is not 4-bit in blocks of 32."""
    read = READERS.get(tensor.kind)
    if read is None or len(tensor.shape) != 2:
        return None
    rows, inputs = tensor.shape
    packed, scales, offsets = read(
        np.asarray(tensor.raw).reshape(rows * inputs // BLOCK // _blocks_of(tensor.kind), -1)
    )
    low_and_high = np.concatenate((packed & 15, packed >> 4), axis=-1)
    return NibbleBlocks(
        values=torch.from_numpy(low_and_high.reshape(rows, inputs)),
        scales=torch.from_numpy(scales.reshape(rows, inputs // BLOCK)),
        offsets=torch.from_numpy(offsets.reshape(rows, inputs // BLOCK)),
    )


def _blocks_of(kind: GGMLQuantizationType) -> int:
    return K_BLOCKS if kind == GGMLQuantizationType.Q4_K else 1


def _read_q4_0(raw: np.ndarray) -> Parts:
    scales = _floats(raw[:, :HALF])
    return raw[:, HALF:], scales, -8.0 * scales


def _read_q4_1(raw: np.ndarray) -> Parts:
    return raw[:, 2 * HALF :], _floats(raw[:, :HALF]), _floats(raw[:, HALF : 2 * HALF])


def _read_q4_k(raw: np.ndarray) -> Parts:
    scale, least = _floats(raw[:, :HALF]), _floats(raw[:, HALF : 2 * HALF])
    scales, minima = Q4_K.get_scale_min(raw[:, 2 * HALF : 2 * HALF + K_SCALES])
    # 32 bytes contain one block in their low nibbles and the next one in their high nibbles.
    pairs = raw[:, 2 * HALF + K_SCALES :].reshape(len(raw), K_BLOCKS // 2, BLOCK)
    low_first = np.stack((pairs & 15, pairs >> 4), axis=2).reshape(-1, BLOCK)
    packed = low_first[:, : BLOCK // 2] | low_first[:, BLOCK // 2 :] << 4
    return packed, scale * scales.astype(np.float32), -least * minima.astype(np.float32)


def _floats(raw: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(raw).view(np.float16).astype(np.float32)


READERS: Final[dict[GGMLQuantizationType, Callable[[np.ndarray], Parts]]] = {
    GGMLQuantizationType.Q4_0: _read_q4_0,
    GGMLQuantizationType.Q4_1: _read_q4_1,
    GGMLQuantizationType.Q4_K: _read_q4_k,
}
