"""Many matrices by codec `powersgd` in one call, on the CPU: for a small one a call takes longer than its loops.

Those that travel as they are have no memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from volary.codec._base import Encoded
from volary.codec.kernels import low_rank
from volary.codec.kernels.batches import MatrixBatch
from volary.codec.kernels.compiled import INFINITE, kernel, largest_magnitude, read
from volary.codec.kernels.low_rank import FARTHEST, NEAREST, add_and_encode, add_product

Values = NDArray[np.float32]
ONE = np.float32(1).view(np.uint32)
Table = NDArray[np.int64]  # as `MatrixBatch.table`


def encode_with_feedback(
    batch: MatrixBatch, values: Tensor, residual: Tensor, frames: Tensor, memory: Tensor
) -> Encoded:
    """Write the frames of `values` + `residual`, and to `residual` what they leave out; flat, and contiguous."""
    largest = np.empty(len(batch.places), np.uint32)
    whole = _encode(read(values), read(residual), read(frames), read(memory), batch.table.numpy(), largest)
    if largest.max(initial=0) >= INFINITE:
        return Encoded.TOO_LARGE
    for number in np.flatnonzero((largest <= NEAREST) | (largest >= FARTHEST)):
        one = batch.places[number]
        sums = residual[one.values].view(one.rows, one.columns)
        low_rank.encode_far(sums, low_rank.as_float(largest[number]), frames[one.frame], memory[one.memory])
        low_rank.add(frames[one.frame], sums, -1)
    return Encoded.WHOLE if whole else Encoded.LEFT_OUT


def decode(batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
    """Write the values of frames to `out`, (n,) and contiguous."""
    _add(read(frames), read(out), batch.table.numpy(), True)


def add(batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
    """Add the values of frames to `out`, (n,) and contiguous."""
    _add(read(frames), read(out), batch.table.numpy(), False)


@kernel
def _encode(
    values: Values, residual: Values, frames: Values, memory: Values, table: Table, largest: NDArray[np.uint32]
) -> bool:
    """Whether all values are finite. largest: bits of each matrix's largest magnitude, or of 1 if it has no memory."""
    whole = True
    for number in range(largest.size):
        rows, columns, at, frame, first, end = table[number]
        size, directions = rows * columns, (end - first) // max(columns, 1)
        own, sums = values[at : at + size], residual[at : at + size]
        if directions:
            written = frames[frame : frame + directions * (rows + columns)]
            largest[number], fine = add_and_encode(own, sums, written, memory[first:end], rows, columns)
        else:
            largest[number], fine = _as_it_is(own, sums, frames[frame : frame + size])
        whole &= fine
    return whole


@kernel
def _as_it_is(values: Values, residual: Values, frame: Values) -> Any:
    fine = bool(largest_magnitude(values.view(np.uint32)) < INFINITE)
    for place in range(frame.size):
        frame[place] = residual[place] + (values[place] if fine else np.float32(0))
        residual[place] = 0
    largest = largest_magnitude(frame.view(np.uint32))
    return (largest if largest >= INFINITE else ONE), fine


@kernel
def _add(frames: Values, out: Values, table: Table, anew: bool) -> None:
    for number in range(table.shape[0]):
        rows, columns, at, frame, first, end = table[number]
        size, directions = rows * columns, (end - first) // max(columns, 1)
        values = out[at : at + size]
        if directions:
            written = frames[frame : frame + directions * (rows + columns)]
            add_product(written, values, np.float32(1), rows, columns, anew)
        else:
            for place in range(size):
                values[place] = frames[frame + place] if anew else values[place] + frames[frame + place]
