"""Int8 weights per output and int8 activations per row, through the native kernel.

Sums are integers, so a row's result depends neither on its neighbours nor on the number of threads.
"""

import torch

from local_engine.errors import ModelUnsupported
from local_engine.native.build import load_int8_linear

LANE = 32


def quantise_rows(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Int8 values and one float32 scale per row, symmetric."""
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / 127.0
    return (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales


class Int8Linear:
    """W8A8; raises ModelUnsupported where the kernel cannot be built or the rows do not fit its lanes."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        function = load_int8_linear()
        if function is None:
            raise ModelUnsupported("int8 weights need a C++ compiler and AVX2 on this machine; use float32.")
        if weight.shape[1] % LANE:
            raise ModelUnsupported(f"int8 weights need rows of a multiple of {LANE}, not {weight.shape[1]}.")
        self._function = function
        self._quantised, self._scales = quantise_rows(weight)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, width = x.shape
        outputs = self._quantised.shape[0]
        result = torch.empty(rows, outputs)
        scratch = torch.empty(rows * width, dtype=torch.int8)
        row_scales = torch.empty(rows)
        self._function(
            x.data_ptr(),
            self._quantised.data_ptr(),
            self._scales.data_ptr(),
            self._bias.data_ptr() if self._bias is not None else None,
            result.data_ptr(),
            scratch.data_ptr(),
            row_scales.data_ptr(),
            rows,
            width,
            outputs,
            torch.get_num_threads(),
        )
        return result
