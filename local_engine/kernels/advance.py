"""Advances a decode batch by one token on the device, so that the host need not intervene while blocks are reserved."""
# pyright: basic, reportCallIssue=false
# The kernel body is written in Triton's language, whose types are not Python's.

import triton
import triton.language as tl
from torch import Tensor

from local_engine.cuda_graph import DecodeInputs
from local_engine.kernels.launch import ceil_divide

ROWS = 64


@triton.jit
def _advance_kernel(
    chosen_ptr,
    token_ids_ptr,
    positions_ptr,
    slots_ptr,
    seq_lens_ptr,
    block_table_ptr,
    rows,
    table_stride,
    block_size,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    length = tl.load(seq_lens_ptr + row, mask=row < rows, other=0)
    # A padded row has length 0 and is left unchanged.
    active = length > 0
    chosen = tl.load(chosen_ptr + row, mask=active, other=0)
    block = tl.load(block_table_ptr + row.to(tl.int64) * table_stride + length // block_size, mask=active, other=0)
    tl.store(token_ids_ptr + row, chosen.to(token_ids_ptr.dtype.element_ty), mask=active)
    tl.store(positions_ptr + row, length.to(positions_ptr.dtype.element_ty), mask=active)
    slot = block.to(tl.int64) * block_size + length % block_size
    tl.store(slots_ptr + row, slot.to(slots_ptr.dtype.element_ty), mask=active)
    tl.store(seq_lens_ptr + row, length + 1, mask=active)


def advance(inputs: DecodeInputs, chosen: Tensor, block_size: int) -> None:
    """Makes `chosen` [rows] the next step's tokens; the block of the next position must be in the table."""
    rows = inputs.seq_lens.shape[0]
    _advance_kernel[(ceil_divide(rows, ROWS),)](
        chosen,
        inputs.token_ids,
        inputs.positions,
        inputs.slots,
        inputs.seq_lens,
        inputs.block_table,
        rows,
        inputs.block_table.stride(0),
        block_size,
        ROWS=ROWS,
        num_warps=2,
    )
