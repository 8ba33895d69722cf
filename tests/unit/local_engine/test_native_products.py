"""The native decoder's products against sums in double precision, with every instruction set of this machine."""

import ctypes

import pytest
import torch

from local_engine.loading.weights import BLOCK, NibbleBlocks, ScaledBlocks
from local_engine.native.build import runnable_sets
from local_engine.native.packed import (
    BRAINS,
    FLOATS,
    HALVES,
    SCALED_BYTES,
    SCALED_NIBBLES,
    SCALED_SHORT,
    PackedMatrix,
    pack_bytes,
    pack_float,
    pack_nibbles,
    pack_scaled,
)
from tests.unit.local_engine.instructions import PLAIN_VECTORS, compiled_as
from tests.unit.local_engine.rounding import packed_bytes, quantise_blocks

pytestmark = compiled_as(*runnable_sets(), PLAIN_VECTORS)
# For more rows, nibbles are unpacked first.
FEW, MANY = 5, 29


def multiply(library: ctypes.CDLL, matrix: PackedMatrix, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(len(x), matrix.outputs)
    library.breakeven_project(
        ctypes.byref(matrix.c_matrix()),
        None,
        ctypes.c_float(0.0),
        ctypes.c_void_p(x.data_ptr()),
        ctypes.c_void_p(y.data_ptr()),
        ctypes.c_long(len(x)),
        ctypes.c_long(2),
    )
    return y


def random_nibbles(outputs: int, inputs: int) -> NibbleBlocks:
    blocks = inputs // BLOCK
    values = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
    scales, offsets = torch.rand(outputs, blocks), torch.randn(outputs, blocks)
    return NibbleBlocks(values, scales.half().float(), offsets.half().float())


def whole(values: torch.Tensor, scales: torch.Tensor, offsets: torch.Tensor | None = None) -> torch.Tensor:
    """Values [rows, k], scales and offsets [rows, k / 32], as one matrix in double precision."""
    blocks = values.double().unflatten(1, (-1, BLOCK)) * scales.double()[..., None]
    return (blocks if offsets is None else blocks + offsets.double()[..., None]).flatten(1)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Activations rounded as for an integer product."""
    scales = x.unflatten(1, (-1, BLOCK)).abs().amax(-1) / 127.0
    inverse = torch.where(scales > 0, 1.0 / scales, torch.zeros(()))
    return whole((x.unflatten(1, (-1, BLOCK)) * inverse[..., None]).round().flatten(1), scales)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, FEW, MANY])
@pytest.mark.parametrize("outputs", [1, 50, 131])
def test_products_are_those_of_the_rounded_numbers(library: ctypes.CDLL, rows: int, outputs: int) -> None:
    torch.manual_seed(rows)
    weight, bias, nibbles = torch.randn(outputs, 96), torch.randn(outputs), random_nibbles(outputs, 96)
    # Eighths up to 127 have scales that are powers of two, so rounding is unambiguous.
    x = torch.randint(-127, 128, (rows, 96)).float() / 8
    x[:, ::BLOCK] = 127 / 8
    cases = [
        (pack_float(weight, bias), x.double() @ weight.double().T),
        (pack_bytes(weight, bias), rounded(x) @ whole(*quantise_blocks(weight)).T),
        (pack_nibbles(nibbles, bias), rounded(x) @ whole(nibbles.values, nibbles.scales, nibbles.offsets).T),
    ]
    for matrix, expected in cases:
        expected += bias
        torch.testing.assert_close(multiply(library, matrix, x), expected.float(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("rows", [FEW, MANY])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_values_do_not_saturate(library: ctypes.CDLL, rows: int, sign: float) -> None:
    x = torch.full((rows, 64), 127.0 * sign)
    largest = torch.full((20, 64), 127.0)
    assert multiply(library, pack_bytes(largest, None), x).eq(sign * 64 * 127 * 127).all()
    assert multiply(library, pack_bytes(-largest, None), x).eq(-sign * 64 * 127 * 127).all()
    fifteens = NibbleBlocks(torch.full((20, 64), 15, dtype=torch.uint8), torch.ones(20, 2), torch.zeros(20, 2))
    assert multiply(library, pack_nibbles(fifteens, None), x).eq(sign * 64 * 15 * 127).all()


def test_a_row_of_zeros_is_zero(library: ctypes.CDLL) -> None:
    for matrix in (pack_float(torch.randn(8, 32), None), pack_bytes(torch.randn(8, 32), None)):
        assert multiply(library, matrix, torch.zeros(1, 32)).eq(0).all()


def random_blocks(outputs: int, inputs: int, block: int, bits: int) -> ScaledBlocks:
    values = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8)
    # As in a file: a 16-bit scale times an 8-bit value is exact in float32.
    scales = torch.randn(outputs, inputs // block).half().float()
    return ScaledBlocks(values, scales, torch.randn(outputs, inputs // block), bits)


def weights_of(blocks: ScaledBlocks) -> torch.Tensor:
    scales, offsets = (part.double().repeat_interleave(blocks.block, dim=1) for part in (blocks.scales, blocks.offsets))
    return (blocks.values * scales + offsets).float()


def panels(weight: torch.Tensor) -> torch.Tensor:
    """A matrix of 70 outputs in float32, as five panels of 16."""
    return torch.cat((weight, torch.zeros(10, weight.shape[1]))).view(5, 16, -1).transpose(1, 2).contiguous()


def test_what_is_held_in_fewer_bits_multiplies_as_the_floats_that_it_stands_for(library: ctypes.CDLL) -> None:
    torch.manual_seed(1)
    bias, plain = torch.randn(70), torch.randn(70, 96)
    nibbles, scaled, short = (random_blocks(70, 96, *kind) for kind in ((32, 4), (32, 8), (16, 8)))
    cases = [
        (BRAINS, pack_float(plain.bfloat16().float(), bias), plain.bfloat16().float()),
        (HALVES, pack_float(plain.half().float(), bias), plain.half().float()),
        (SCALED_NIBBLES, pack_scaled(nibbles, bias), weights_of(nibbles)),
        (SCALED_BYTES, pack_scaled(scaled, bias), weights_of(scaled)),
        (SCALED_SHORT, pack_scaled(short, bias), weights_of(short)),
    ]
    for kind, held, weight in cases:
        floats = PackedMatrix(panels(weight), held.bias, 96, 70, FLOATS)
        assert held.format == kind
        for rows in (1, 2, 3, 4, 6, 7, 12, MANY):
            x = torch.randn(rows, 96)
            assert torch.equal(multiply(library, held, x), multiply(library, floats, x))
        tokens = torch.tensor([69, 0, 16, 15, 33])
        found = torch.empty(5, 96)
        pointers = (ctypes.c_void_p(part.data_ptr()) for part in (tokens, found))
        library.breakeven_embed(ctypes.byref(held.c_matrix()), *pointers, ctypes.c_long(5))
        assert torch.equal(found, weight[tokens])


def test_every_row_is_as_it_is_alone(library: ctypes.CDLL) -> None:
    x = torch.randn(MANY, 64) * torch.logspace(-3, 3, MANY)[:, None]
    for matrix in (
        pack_float(torch.randn(70, 64), None),
        pack_float(torch.randn(70, 64).bfloat16().float(), None),
        pack_scaled(random_blocks(70, 64, 32, 4), None),
        pack_scaled(random_blocks(70, 64, 16, 8), None),
        pack_nibbles(random_nibbles(70, 64), None),
    ):
        together = multiply(library, matrix, x)
        assert all(torch.equal(multiply(library, matrix, x[i : i + 1])[0], together[i]) for i in range(MANY))


def test_bytes_are_rounded_and_laid_out_as_torch_would(library: ctypes.CDLL) -> None:
    """Including ties, zeros, tiny values, scales that float16 rounds to its smallest value or cannot represent, and
    incomplete panels."""
    weight = torch.randn(37, 128) * torch.logspace(-9, 7, 37)[:, None]
    weight[3, :64] = 0.0
    weight[20, :32] = torch.arange(32) - 16.5
    weight[20, 0] = 127.0
    for outputs in (37, 32, 5):
        assert torch.equal(pack_bytes(weight[:outputs], None, library).packed, packed_bytes(weight[:outputs]))
    turned = torch.randn(64, 48).T
    assert torch.equal(pack_bytes(turned, None, library).packed, packed_bytes(turned.contiguous()))
