"""The native decoder's product against the same sums in double precision, in every instruction set of this machine."""

import ctypes

import pytest
import torch

from local_engine.native.build import compile_decoder, load_decoder, runnable_sets
from local_engine.native.packed import PackedMatrix, pack_bytes, pack_float, pack_nibbles, quantise_blocks
from local_engine.weights import BLOCK, NibbleBlocks

LIBRARIES = {instructions.name: compile_decoder(instructions) for instructions in runnable_sets()}
pytestmark = [
    pytest.mark.skipif(load_decoder() is None, reason="needs a C++ compiler and AVX2: install g++ on x86-64"),
    pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES.keys()),
]
# Prompts of more rows have their nibbles unpacked first.
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
    """Activations as a product of integers takes them."""
    scales = x.unflatten(1, (-1, BLOCK)).abs().amax(-1) / 127.0
    inverse = torch.where(scales > 0, 1.0 / scales, torch.zeros(()))
    return whole((x.unflatten(1, (-1, BLOCK)) * inverse[..., None]).round().flatten(1), scales)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, FEW, MANY])
@pytest.mark.parametrize("outputs", [1, 50, 131])
def test_products_are_those_of_the_rounded_numbers(library: ctypes.CDLL, rows: int, outputs: int) -> None:
    torch.manual_seed(rows)
    weight, bias, nibbles = torch.randn(outputs, 96), torch.randn(outputs), random_nibbles(outputs, 96)
    # Eighths up to 127 have scales of a power of two: nobody rounds them otherwise.
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


def test_every_row_is_as_it_is_alone(library: ctypes.CDLL) -> None:
    x = torch.randn(MANY, 64) * torch.logspace(-3, 3, MANY)[:, None]
    for matrix in (pack_float(torch.randn(70, 64), None), pack_nibbles(random_nibbles(70, 64), None)):
        together = multiply(library, matrix, x)
        assert all(torch.equal(multiply(library, matrix, x[i : i + 1])[0], together[i]) for i in range(MANY))
