"""The kernels between the matrix products: norms, activation, rotary embedding with the cache write."""

from functools import partial

import pytest
import torch

from local_engine.kernels import reference
from local_engine.kernels.gemv import gemv, rows_per_program
from local_engine.kernels.rms_norm import add_rms_norm, rms_norm
from local_engine.kernels.rope_store import HeadNorms, rope_store
from local_engine.kernels.silu_mul import silu_mul
from tests.engine.kernels.builders import relative_error


@pytest.mark.parametrize("columns", [64, 100, 576])
def test_rms_norm(columns: int) -> None:
    torch.manual_seed(columns)
    x, residual, weight = torch.randn(3, columns + 8)[:, :columns], torch.randn(3, columns), torch.randn(columns)
    assert relative_error(rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5)) < 1e-6
    wanted, total = reference.add_rms_norm(x, residual, weight, 1e-5)
    assert relative_error(add_rms_norm(x, residual, weight, 1e-5), wanted) < 1e-6
    assert torch.equal(residual, total)


@pytest.mark.parametrize(("columns", "dtype", "bound"), [(70, torch.float32, 1e-6), (1100, torch.float16, 1e-3)])
def test_silu_mul(columns: int, dtype: torch.dtype, bound: float) -> None:
    gate_up = torch.randn(3, 2 * columns, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert relative_error(silu_mul(gate_up), reference.silu_mul(gate_up)) < bound


@pytest.mark.parametrize(("rows", "columns", "per_program"), [(24, 64, 1), (7, 100, 2), (10, 1500, 4)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_one_row_is_as_its_parts(rows: int, columns: int, per_program: int, *, has_bias: bool) -> None:
    """With one pass over the columns and with two, and outputs of the last program beyond the end."""
    torch.manual_seed(rows)
    x, norm, weight = torch.randn(1, columns), torch.randn(columns), torch.randn(2 * rows, columns)
    bias, residual = torch.randn(2 * rows) if has_bias else None, torch.randn(1, 2 * rows)
    plain = torch.nn.functional.linear(x, weight, bias)
    normed = torch.nn.functional.linear(reference.rms_norm(x, norm, 1e-5), weight, bias)
    product = partial(gemv, x, weight, bias, per_program=per_program)
    assert relative_error(product(), plain) < 1e-5
    assert relative_error(product(residual=residual), plain + residual) < 1e-5
    assert relative_error(product(norm=norm, eps=1e-5), normed) < 1e-5
    gated = product(norm=norm, eps=1e-5, gates=True)
    assert gated.shape == (1, rows)
    assert relative_error(gated, reference.silu_mul(normed)) < 1e-5


@pytest.mark.parametrize(
    ("rows", "is_narrow", "wanted"),
    [(64, False, 1), (576, False, 2), (1024, False, 4), (128_256, False, 4), (1024, True, 4), (128_256, True, 8)],
)
def test_programs_are_enough_for_a_large_device(rows: int, wanted: int, *, is_narrow: bool) -> None:
    assert rows_per_program(rows, 132, is_narrow=is_narrow) == wanted


def test_one_row_rounds_where_the_separate_kernels_do() -> None:
    torch.manual_seed(2)
    x, weight, residual = torch.randn(1, 64).half(), torch.randn(32, 64).half(), torch.randn(1, 32).half() * 100
    product = (x.float() @ weight.float().T).half()
    assert torch.equal(gemv(x, weight, residual=residual), (product.float() + residual.float()).half())


@pytest.mark.parametrize(("q_heads", "kv_heads", "dim"), [(4, 2, 64), (9, 3, 64), (2, 2, 80)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_rope_store(q_heads: int, kv_heads: int, dim: int, *, has_norms: bool) -> None:
    torch.manual_seed(q_heads + dim)
    tokens, block_size = 5, 16
    qkv = torch.randn(tokens, (q_heads + 2 * kv_heads) * dim)
    cos, sin = torch.randn(40, dim // 2), torch.randn(40, dim // 2)
    positions, slots = torch.tensor([0, 7, 39, 3, 4]), torch.tensor([5, 33, -1, 0, 47])
    norms = HeadNorms(torch.randn(dim), torch.randn(dim), 1e-6) if has_norms else None
    caches = (torch.randn(3, block_size, kv_heads, dim), torch.randn(3, block_size, kv_heads, dim))
    wanted_caches = (caches[0].clone(), caches[1].clone())

    q, k, v = (part.clone() for part in qkv.view(tokens, -1, dim).split([q_heads, kv_heads, kv_heads], dim=1))
    if norms:
        q, k = reference.rms_norm(q, norms.q_weight, 1e-6), reference.rms_norm(k, norms.k_weight, 1e-6)
    q, k = (reference.rotate(x, cos[positions], sin[positions]) for x in (q, k))
    reference.store_kv(wanted_caches[0], slots, k)
    reference.store_kv(wanted_caches[1], slots, v)

    rope_store(qkv, (cos, sin), positions, slots, caches, q_heads=q_heads, norms=norms)
    assert relative_error(qkv, torch.cat([q, k, v], dim=1).flatten(1)) < 1e-6
    for got, wanted in zip(caches, wanted_caches, strict=True):
        assert relative_error(got, wanted) < 1e-6


def test_rope_store_into_fp8_saturates() -> None:
    torch.manual_seed(5)
    qkv = torch.randn(3, 4 * 64) * 300
    unturned = (torch.ones(3, 32), torch.zeros(3, 32))
    # The interpreter rounds a carry into the exponent wrongly, so all values are exact in e4m3 or saturate.
    qkv[:, 128:192] = qkv[:, 128:192].sign() * 64
    qkv[:, 192:] = qkv[:, 192:].sign() * 100_000
    k_cache = torch.zeros(1, 16, 1, 64).to(torch.float8_e4m3fn)
    v_cache = torch.zeros(1, 16, 1, 64).to(torch.float8_e4m3fn)
    k_wanted, v_wanted = torch.zeros_like(k_cache), torch.zeros_like(v_cache)
    slots = torch.tensor([3, 0, 9])
    k, v = qkv[:, 128:192].reshape(3, 1, 64).clone(), qkv[:, 192:].reshape(3, 1, 64).clone()
    reference.store_kv(k_wanted, slots, k)
    reference.store_kv(v_wanted, slots, v)
    rope_store(qkv, unturned, torch.arange(3), slots, (k_cache, v_cache), q_heads=2)
    assert torch.equal(k_cache.float(), k_wanted.float())
    assert torch.equal(v_cache.float(), v_wanted.float())
    assert v_cache.float().abs().max() == 448
