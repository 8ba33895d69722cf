"""4-bit matrices as stored in a file, against gguf's own dequantisation of the same bytes."""

import gguf
import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from local_engine.loading.gguf_file import GgufTensor
from local_engine.loading.gguf_loader import dequantise
from local_engine.loading.gguf_nibbles import nibbles_of
from local_engine.loading.weights import BLOCK

ROWS, INPUTS = 5, 512


def stored(kind: GGMLQuantizationType) -> GgufTensor:
    """Random values for a type that gguf can write, or random bytes for one that it can only read."""
    random = np.random.default_rng(2)
    if kind != GGMLQuantizationType.Q4_K:
        values = random.normal(size=(ROWS, INPUTS)).astype(np.float32)
        return GgufTensor("w", (ROWS, INPUTS), kind, gguf.quants.quantize(values, kind))
    size, block_bytes = GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (ROWS * INPUTS // size, block_bytes), dtype=np.uint8)
    raw[:, :4] = random.uniform(0.01, 1, (len(raw), 2)).astype(np.float16).view(np.uint8)
    return GgufTensor("w", (ROWS, INPUTS), kind, raw.reshape(ROWS, -1))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q4_K"])
def test_scale_times_value_plus_offset_is_the_weight(name: str) -> None:
    tensor = stored(GGMLQuantizationType[name])
    found = nibbles_of(tensor)
    assert found is not None
    assert int(found.values.max()) == 15
    weights = found.values.unflatten(1, (-1, BLOCK)) * found.scales[..., None] + found.offsets[..., None]
    np.testing.assert_allclose(weights.flatten(1).numpy(), dequantise(tensor), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["Q8_0", "F16", "F32", "Q5_1"])
def test_other_types_are_not_of_four_bits(name: str) -> None:
    assert nibbles_of(stored(GGMLQuantizationType[name])) is None
