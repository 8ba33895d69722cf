"""The native int8 product against an integer reference, bitwise, and its independence of neighbours."""

from pathlib import Path

import pytest
import torch

from local_engine.layers.int8_linear import Int8Linear, quantise_rows
from local_engine.native.build import load_int8_linear

pytestmark = pytest.mark.skipif(
    load_int8_linear() is None, reason="needs a C++ compiler and AVX2: install g++ on an x86-64 machine"
)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    quantised, scales = quantise_rows(weight)
    largest = x.abs().amax(dim=1)
    row_scales = largest / 127.0
    inverse = torch.where(largest > 0, 127.0 / largest, torch.zeros(()))
    rounded = (x * inverse[:, None]).round().to(torch.int64)
    sums = (rounded @ quantised.to(torch.int64).T).float()
    out = sums * (row_scales[:, None] * scales[None, :])
    return out if bias is None else out + bias


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 31, 33, 100])
@pytest.mark.parametrize("outputs", [1, 50, 51])
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_product_is_exact_in_integers(rows: int, outputs: int, has_bias: bool) -> None:
    torch.manual_seed(rows)
    weight, x = torch.randn(outputs, 96), torch.randn(rows, 96)
    bias = torch.randn(outputs) if has_bias else None
    torch.testing.assert_close(Int8Linear(weight, bias)(x), reference(x, weight, bias), rtol=1e-6, atol=1e-6)


def test_the_largest_values_do_not_saturate() -> None:
    weight, x = torch.full((8, 64), -3.0), torch.full((2, 64), 5.0)
    x[1] = -5.0
    out = Int8Linear(weight, None)(x)
    torch.testing.assert_close(out, x @ weight.T)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    linear, x = Int8Linear(torch.randn(70, 64), None), torch.randn(13, 64) * torch.logspace(-3, 3, 13)[:, None]
    together = linear(x)
    assert all(torch.equal(linear(x[i : i + 1])[0], together[i]) for i in range(13))


def test_a_row_of_zeros_is_zero() -> None:
    assert Int8Linear(torch.randn(8, 32), None)(torch.zeros(1, 32)).eq(0).all()


def test_who_has_no_folder_to_keep_it_in_has_it_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_int8_linear.__wrapped__() is not None
