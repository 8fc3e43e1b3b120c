"""A power iteration on a matrix, and the product that it leaves: the loops of codec `powersgd`.

A frame is two thin matrices of fp32, left (rank, rows) and right (rank, columns): left.T @ right stands for the matrix.
The vectors of `left` are orthogonal and their root mean square is 1: `right` has no larger values than the matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec.kernels.compiled import change, compiled, kernel, read, summing_kernel

FAR = 2.0**100  # from 1: sums of products of values that are as far, or as near to 0, are inexact or too large
LARGEST = float(np.finfo(np.float32).max)
DEPENDENT = 1e-6  # of a vector's length: where no more is left of it beside the others, that is rounding

MAGNITUDE = np.uint32(0x7FFFFFFF)  # all bits but the sign

Values = NDArray[np.float32]
Doubles = NDArray[np.float64]


def fixed(place: Any) -> Any:
    """A number from -1 to 1 that looks like chance and is the same everywhere; of an int, or a tensor of them."""
    mixed = ((place + 1) * 0x9E3779B1) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    return mixed / 2.0**31 - 1.0


_fixed = kernel(fixed)


def encode(values: Tensor, frame: Tensor, memory: Tensor) -> bool:
    """Write the frame of `values` (rows, columns), going on from the `right` in `memory`, which becomes the new one.

    Returns whether all values were finite; frame and memory stay as they are if not.
    """
    most = _magnitude(values)
    if not most < float("inf"):
        return False
    left, right = _thin(frame, *values.shape)
    if 1 / FAR < most < FAR:
        _iterate(values, frame, memory)
    else:
        factor = 1 / FAR if most >= FAR else FAR
        _iterate(values * factor, frame, memory)
        left /= factor
        product = float(left.abs().max()) * float(right.abs().double().sum(0).max())
        if product > LARGEST:
            right *= LARGEST / product / 2
    return True


def _magnitude(values: Tensor) -> float:
    """Of the largest value; NaN if one is."""
    if not values.numel():
        return 0.0
    if compiled(values):
        # the order of magnitudes is that of their bits, and NaN is above all
        return float(np.uint32(_largest(read(values, np.uint32))).view(np.float32))
    return float(torch.stack(torch.aminmax(values)).abs().max())


def _iterate(values: Tensor, frame: Tensor, memory: Tensor) -> None:
    if compiled(values):
        _iterate_by_loops(read(values), read(frame), read(memory), *values.shape)
    else:
        _iterate_by_torch(values, *_thin(frame, *values.shape), memory)


def add(frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the product of a frame's matrices, times `sign`, to `out` (rows, columns)."""
    if compiled(out):
        change(out, lambda values: _add(read(frame), values, np.float32(sign), *out.shape))
    else:
        _add_by_torch(*_thin(frame, *out.shape), out, sign)


def _thin(frame: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """`left` and `right` of a frame."""
    values = frame.view(torch.float32)
    cut = values.numel() // (rows + columns) * rows
    return values[:cut].view(-1, rows), values[cut:].view(-1, columns)


@kernel
def _largest(bits: NDArray[np.uint32]) -> np.uint32:
    largest = np.uint32(0)
    for place in range(bits.size):
        largest = max(largest, bits[place] & MAGNITUDE)
    return largest


@kernel
def _iterate_by_loops(values: Values, frame: Values, memory: Values, rows: int, columns: int) -> None:
    rank = memory.size // columns
    left, right = frame[: rank * rows].reshape((rank, rows)), frame[rank * rows :].reshape((rank, columns))
    vectors = np.empty((rank, rows))
    _begin(memory.reshape((rank, columns)), right)
    _onto(values, right, vectors)
    _make_orthogonal(vectors)
    # value by value: where an array is assigned to another, Numba compiles what it would say of their shapes, for 3 s
    length = np.sqrt(rows)
    for number in range(rank):
        for row in range(rows):
            left[number, row] = vectors[number, row] * length
    _back(values, left, right)
    for place in range(memory.size):
        memory[place] = frame[rank * rows + place]


@kernel
def _begin(before: Values, right: Values) -> None:
    """Where the frame before ended; fixed directions where that is zeros. Each row's magnitudes sum to 1 at most."""
    rank, columns = right.shape
    for number in range(rank):
        total = 0.0
        for column in range(columns):
            total += abs(np.float64(before[number, column]))
        for column in range(columns):
            if total > 0:
                right[number, column] = before[number, column] / total
            else:
                right[number, column] = _fixed(number * columns + column) / columns


@summing_kernel
def _onto(values: Values, right: Values, vectors: Doubles) -> None:
    """The product right @ values.T."""
    rank, columns = right.shape
    for row in range(vectors.shape[1]):
        line = values[row * columns : (row + 1) * columns]
        for number in range(rank):
            total = np.float32(0)
            for column in range(columns):
                total += line[column] * right[number, column]
            vectors[number, row] = total


@kernel
def _make_orthogonal(vectors: Doubles) -> None:
    """Gram-Schmidt, twice: once leaves too much where vectors are close. One that depends on others becomes zeros."""
    for number in range(vectors.shape[0]):
        vector = vectors[number]
        length = np.sqrt(_dot(vector, vector))
        for _ in range(2):
            for other in range(number):
                vector -= _dot(vector, vectors[other]) * vectors[other]
        rest = np.sqrt(_dot(vector, vector))
        vector *= 1 / rest if rest > DEPENDENT * length else 0.0


@summing_kernel
def _dot(one: Doubles, other: Doubles) -> float:
    total = 0.0
    for place in range(one.size):
        total += one[place] * other[place]
    return total


@summing_kernel
def _back(values: Values, left: Values, right: Values) -> None:
    """The product left @ values / rows."""
    rank, columns = right.shape
    right[:] = 0
    for row in range(left.shape[1]):
        line = values[row * columns : (row + 1) * columns]
        for number in range(rank):
            weight = left[number, row] / np.float32(left.shape[1])
            for column in range(columns):
                right[number, column] += weight * line[column]


@kernel
def _add(frame: Values, out: Values, sign: np.float32, rows: int, columns: int) -> None:
    """Without sums whose order is the compiler's: all ranks get the same, whatever their processors."""
    rank = frame.size // (rows + columns)
    left, right = frame[: rank * rows].reshape((rank, rows)), frame[rank * rows :].reshape((rank, columns))
    product = np.empty(columns, np.float32)
    for row in range(rows):
        product[:] = 0
        for number in range(rank):
            weight = left[number, row]
            for column in range(columns):
                product[column] += weight * right[number, column]
        line = out[row * columns : (row + 1) * columns]
        for column in range(columns):
            line[column] += sign * product[column]


def _iterate_by_torch(values: Tensor, left: Tensor, right: Tensor, memory: Tensor) -> None:
    before = memory.view(right.shape).double()
    total = before.abs().sum(1, keepdim=True)
    anew = fixed(torch.arange(right.numel(), device=right.device)).view(right.shape) / right.shape[1]
    vectors = (torch.where(total > 0, before / total, anew).float() @ values.T).double()
    _make_orthogonal_by_torch(vectors)
    left.copy_(vectors * left.shape[1] ** 0.5)
    torch.mm(left / left.shape[1], values, out=right)
    memory.copy_(right.view(-1))


def _make_orthogonal_by_torch(vectors: Tensor) -> None:
    for number, vector in enumerate(vectors):
        length, others = vector.norm(), vectors[:number]
        for _ in range(2):
            vector -= (others @ vector) @ others
        rest = vector.norm()
        vector.copy_(torch.where(rest > DEPENDENT * length, vector / rest, torch.zeros_like(vector)))


def _add_by_torch(left: Tensor, right: Tensor, out: Tensor, sign: int) -> None:
    product = left[0].unsqueeze(1) * right[0]
    for number in range(1, len(left)):
        product += left[number].unsqueeze(1) * right[number]
    out.add_(product, alpha=sign)
