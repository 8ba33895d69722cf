"""silu(gate) * up on the output of the merged gate-and-up projection, in one pass."""
# pyright: basic, reportCallIssue=false, reportGeneralTypeIssues=false, reportPrivateImportUsage=false
# The kernel body is written in Triton's language, whose types are not Python's.

import torch
import triton
import triton.language as tl
from torch import Tensor

from local_engine.kernels.launch import ceil_divide

BLOCK = 1024


@triton.jit
def _silu_mul_kernel(gate_up_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    source = gate_up_ptr + row * 2 * columns + column
    gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(source + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * columns + column, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """gate_up [rows, 2 * columns], contiguous, gate first; returns [rows, columns]."""
    rows, columns = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((rows, columns), dtype=gate_up.dtype, device=gate_up.device)
    _silu_mul_kernel[(rows, ceil_divide(columns, BLOCK))](gate_up, out, columns, BLOCK=BLOCK, num_warps=4)
    return out
