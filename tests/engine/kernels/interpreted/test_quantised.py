"""Four-bit and e4m3 weights: packing, unpacking and the products."""

from functools import partial

import pytest
import torch

from local_engine.kernels import reference
from local_engine.kernels.fp8 import fp8_matmul, quantise_rows, quantise_weight
from local_engine.kernels.gemv import gemv
from local_engine.kernels.int4 import Int4Weight, dequantise, int4_matmul, pack, quantise
from local_engine.kernels.linear import Int4Linear, stored_int4_linear
from local_engine.loading.weights import NibbleBlocks
from tests.engine.kernels.builders import relative_error


@pytest.mark.parametrize(("group", "rows_of_x"), [(32, 1), (128, 1), (32, 5), (128, 20), (64, 130)])
def test_int4_matmul(group: int, rows_of_x: int) -> None:
    torch.manual_seed(group + rows_of_x)
    weight = quantise(torch.randn(50, 384), group)
    assert weight.group == group
    x = torch.randn(rows_of_x, 384)
    wanted = reference.int4_matmul(x, weight.packed, weight.scales, weight.offsets)
    assert relative_error(int4_matmul(x, weight), wanted) < 1e-5
    unpacked = reference.dequantise_int4(weight.packed, weight.scales, weight.offsets)
    assert torch.equal(dequantise(weight, torch.float32), unpacked)


def test_packing_is_llama_cpps_q4_order() -> None:
    """Byte b of a block of 32: element b low, element b + 16 high."""
    nibbles = torch.arange(64).remainder(16).view(1, 64)
    nibbles[0, 16:32] = 7
    packed = pack(nibbles)
    assert packed[0, 3].item() == 3 | 7 << 4
    weight = Int4Weight(packed, torch.ones(1, 2), torch.zeros(1, 2))
    assert torch.equal(dequantise(weight, torch.float32), nibbles.float())


def test_quantising_to_sixteen_levels_loses_at_most_half_a_level() -> None:
    torch.manual_seed(2)
    original = torch.randn(8, 256)
    weight = quantise(original, 128, torch.float32)
    error = (reference.dequantise_int4(weight.packed, weight.scales, weight.offsets) - original).abs()
    assert bool((error.view(8, 2, 128) <= weight.scales[..., None] * 0.5001).all())


@pytest.mark.parametrize(("together", "group"), [(1, 32), (2, 64), (4, 128), (3, 32)])
def test_a_files_own_four_bits_are_multiplied_as_they_are(together: int, group: int) -> None:
    """In the largest groups that its scales allow."""
    torch.manual_seed(together)
    blocks = NibbleBlocks(
        values=torch.randint(0, 16, (20, 384), dtype=torch.uint8),
        scales=torch.rand(20, 12 // together).half().float().repeat_interleave(together, 1),
        offsets=torch.randn(20, 12 // together).half().float().repeat_interleave(together, 1),
    )
    weight = blocks.values.unflatten(1, (-1, 32)) * blocks.scales[..., None] + blocks.offsets[..., None]
    linear, x, bias = stored_int4_linear(blocks, torch.ones(20)), torch.randn(3, 384), torch.ones(20)
    assert isinstance(linear, Int4Linear)
    assert linear.weight.group == group
    assert relative_error(linear(x), x @ weight.flatten(1).T + bias) < 1e-5


def test_quantising_refuses_groups_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="cannot be cut into groups"):
        quantise(torch.randn(2, 100), 32)


def test_fp8_rows() -> None:
    """Rows of values exact in e4m3, times a power of two: the scale is that power, and nothing is rounded.

    The interpreter rounds a carry into the exponent wrongly, so rounding itself cannot be tested through it.
    """
    torch.manual_seed(3)
    grid = torch.randn(4, 100).mul(100).clamp(-400, 400).to(torch.float8_e4m3fn)
    grid[:, 7] = torch.tensor([448.0, -448.0, 448.0, 448.0]).to(torch.float8_e4m3fn)
    powers = torch.tensor([1.0, 1024.0, 2.0**-20, 0.0])[:, None]
    values, scales = quantise_rows(grid.float() * powers)
    assert torch.equal(values[:3].float(), grid[:3].float())
    assert torch.equal(scales[:, 0], torch.tensor([1.0, 1024.0, 2.0**-20, 1.0]))
    assert not values[3].float().any()


def test_fp8_matmul_multiplies_what_was_quantised() -> None:
    torch.manual_seed(4)
    x, original = torch.randn(3, 128), torch.randn(32, 128)
    weight = quantise_weight(original)
    values, scales = quantise_rows(x)
    wanted = (values.double() * scales) @ (weight.values.double() * weight.scales).T
    assert relative_error(fp8_matmul(x, weight), wanted) < 1e-5
    assert relative_error(weight.values.float() * weight.scales, original) < 0.03


@pytest.mark.parametrize("has_bias", [False, True])
def test_one_row_of_e4m3_is_as_its_parts(*, has_bias: bool) -> None:
    """Norm, rounding, product, silu and residual; two passes over the columns, and the last program beyond the end.

    A row of ones and minus ones is normed to its weights, which are exact in e4m3: nothing is rounded.
    """
    torch.manual_seed(5)
    x = torch.where(torch.rand(1, 1200) < 0.5, -1.0, 1.0)
    norm = torch.randn(1200).mul(100).clamp(-400, 400).to(torch.float8_e4m3fn).float()
    norm[7] = 448.0
    weight = quantise_weight(torch.randn(20, 1200) * 1e-4)
    bias, residual = torch.randn(20) if has_bias else None, torch.randn(1, 20)
    product = partial(gemv, x, weight.values, bias, scales=weight.scales, per_program=4)
    normed = reference.rms_norm(x, norm, 0.0)
    plain, wanted = fp8_matmul(x, weight), fp8_matmul(normed, weight)
    if bias is not None:
        plain, wanted = plain + bias, wanted + bias
    assert relative_error(product(), plain) < 1e-5
    assert relative_error(product(residual=residual), plain + residual) < 1e-5
    assert relative_error(product(norm=norm), wanted) < 1e-5
    assert relative_error(product(norm=norm, gates=True), reference.silu_mul(wanted)) < 1e-5
    assert not product(norm=norm * 0.0).sub(0.0 if bias is None else bias).any(), "a row of zeros"
