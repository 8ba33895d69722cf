"""Low-bit matrices as stored in a file: rounded once, they equal gguf's own dequantisation to the bit."""

import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from local_engine.loading.gguf_blocks import LAYOUTS, blocks_of, bytes_per_weight
from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.gguf_loader import dequantise
from local_engine.loading.gguf_nibbles import READERS
from local_engine.loading.weights import BLOCK, ScaledBlocks, stack_blocks

ROWS = 37
# Position of a block's overall scale and minimum, if not at its beginning; all other bytes may be anything.
HALVES = {
    "Q5_1": (0, 2),
    "Q4_1": (0, 2),
    "Q5_K": (0, 2),
    "Q4_K": (0, 2),
    "Q6_K": (208,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
}


def random_tensor(kind: GGMLQuantizationType, inputs: int = 0) -> GgufTensor:
    """Random bytes, except for scales that no converter writes (infinities and the like)."""
    random = np.random.default_rng(kind.value)
    size, block_bytes = GGML_QUANT_SIZES[kind]
    inputs = inputs or 9 * 256  # so that the last of several parts is a smaller one
    raw = random.integers(0, 256, (ROWS * inputs // size, block_bytes), dtype=np.uint8)
    if kind == GGMLQuantizationType.MXFP4:
        raw[:, 0] = random.integers(100, 140, len(raw))
    else:
        for at in HALVES.get(kind.name, (0,)):
            raw[:, at : at + 2] = (0.01 * random.normal(size=(len(raw), 1))).astype(np.float16).view(np.uint8)
    return GgufTensor("w", (ROWS, inputs), kind, raw.reshape(ROWS, -1))


def weights_of(blocks: ScaledBlocks) -> torch.Tensor:
    """The weights, rounded once, since all products and sums are exact in double precision."""
    scales, offsets = (part.double().repeat_interleave(blocks.block, dim=1) for part in (blocks.scales, blocks.offsets))
    return (blocks.values * scales + offsets).float()


@pytest.mark.parametrize("kind", [*READERS, *LAYOUTS], ids=lambda kind: kind.name)
def test_scaled_values_are_the_weights_to_the_bit(kind: GGMLQuantizationType) -> None:
    tensor = random_tensor(kind)
    found = blocks_of(tensor)
    assert found is not None
    assert torch.equal(weights_of(found), torch.from_numpy(dequantise(tensor)))
    header = 8 / found.block
    assert bytes_per_weight(kind) == found.bits / 8 + header


@pytest.mark.parametrize("name", ["F32", "F16", "BF16", "IQ3_S"])
def test_other_types_are_no_scaled_values(name: str) -> None:
    kind = GGMLQuantizationType[name]
    size, block_bytes = GGML_QUANT_SIZES[kind]
    raw = np.zeros((2, block_bytes * 256 // size), np.uint8)
    assert blocks_of(GgufTensor("w", (2, 256), kind, raw)) is None
    assert bytes_per_weight(kind) == {"F16": 2.0, "BF16": 2.0}.get(name, 4.0)


def test_matrices_of_several_types_are_stacked_without_loss() -> None:
    parts = [blocks_of(random_tensor(GGMLQuantizationType[name], inputs=512)) for name in ("Q4_K", "Q8_0", "Q6_K")]
    for some in (parts, parts[:2], parts[1:], parts[:1]):
        stacked = stack_blocks(some)
        assert stacked is not None
        assert torch.equal(weights_of(stacked), torch.cat([weights_of(part) for part in some if part is not None]))
    one, two = stack_blocks(parts[:1]), stack_blocks(parts[:2])
    assert one is not None
    assert two is not None
    assert (one.bits, one.block, two.bits, two.block) == (4, BLOCK, 8, BLOCK)
    assert stack_blocks([parts[0], None]) is None
