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

from volary.codec._base import Encoded
from volary.codec.kernels.compiled import (
    INFINITE,
    MAGNITUDE,
    change,
    compiled,
    kernel,
    largest_magnitude,
    read,
    summing_kernel,
)

FAR = 2.0**100  # from 1: sums of products of values that are as far, or as near to 0, are inexact or too large
LARGEST = float(np.finfo(np.float32).max)
DEPENDENT = 1e-6  # of a vector's length: where no more is left of it beside the others, that is rounding

NEAREST, FARTHEST = (np.float32(bound).view(np.uint32) for bound in (1 / FAR, FAR))  # magnitudes' bits

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
    if 1 / FAR < most < FAR:
        _iterate(values, frame, memory)
    else:
        encode_far(values, most, frame, memory)
    return True


def encode_with_feedback(values: Tensor, residual: Tensor, frame: Tensor, memory: Tensor) -> Encoded:
    """The same of `values` + `residual`, (rows, columns) each, and to `residual` what the frame leaves out; on the CPU.

    One call: of a small matrix several would take longer than what they do.
    """
    sums, rows, columns = read(residual), *residual.shape
    magnitude, whole = add_and_encode(read(values.contiguous()), sums, read(frame), read(memory), rows, columns)
    most = as_float(magnitude)
    if not most < float("inf"):
        return Encoded.TOO_LARGE
    if not 1 / FAR < most < FAR:
        encode_far(residual, most, frame, memory)
        add(frame, residual, -1)
    return Encoded.WHOLE if whole else Encoded.LEFT_OUT


def encode_far(values: Tensor, most: float, frame: Tensor, memory: Tensor) -> None:
    """Write the frame of `values` (rows, columns), scaled as products of `most`, the largest, are inexact."""
    factor = 1 / FAR if most >= FAR else FAR
    _iterate(values * factor, frame, memory)
    left, right = _thin(frame, *values.shape)
    left /= factor
    product = float(left.abs().max()) * float(right.abs().double().sum(0).max())
    if product > LARGEST:
        right *= LARGEST / product / 2


def _magnitude(values: Tensor) -> float:
    """The magnitude of the largest value; NaN if one is NaN."""
    if not values.numel():
        return 0.0
    if compiled(values):
        return as_float(largest_magnitude(read(values, np.uint32)))
    return float(torch.stack(torch.aminmax(values)).abs().max())


def as_float(magnitude: np.uint32) -> float:
    """The magnitude with these bits, whose order is that of magnitudes; NaN is above all."""
    return float(np.uint32(magnitude).view(np.float32))


def _iterate(values: Tensor, frame: Tensor, memory: Tensor) -> None:
    if compiled(values):
        _iterate_by_loops(read(values), read(frame), read(memory), *values.shape)
    else:
        _iterate_by_torch(values, *_thin(frame, *values.shape), memory)


def add(frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the product of a frame's matrices, times `sign`, to `out` (rows, columns)."""
    rows, columns = out.shape
    if compiled(out):
        change(out, lambda values: add_product(read(frame), values, np.float32(sign), rows, columns, False))
    else:
        _add_by_torch(*_thin(frame, *out.shape), out, sign)


def decode(frame: Tensor, out: Tensor) -> None:
    """Write the product of a frame's matrices to `out` (rows, columns)."""
    rows, columns = out.shape
    if compiled(out):
        change(out, lambda values: add_product(read(frame), values, np.float32(1), rows, columns, True))
    else:
        _add_by_torch(*_thin(frame, *out.shape), out.zero_(), 1)


def _thin(frame: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """`left` and `right` of a frame."""
    values = frame.view(torch.float32)
    cut = values.numel() // (rows + columns) * rows
    return values[:cut].view(-1, rows), values[cut:].view(-1, columns)


@kernel
def add_and_encode(
    values: Values, residual: Values, frame: Values, memory: Values, rows: int, columns: int
) -> tuple[np.uint32, bool]:
    """The bits of the largest magnitude of the sums, and whether the values are finite; else they count as zero.

    Where that magnitude is too far from 1 there is no frame yet.
    """
    whole = bool(largest_magnitude(values.view(np.uint32)) < INFINITE)
    largest = _add_values(values, residual) if whole else largest_magnitude(residual.view(np.uint32))
    if NEAREST < largest < FARTHEST:
        _iterate_by_loops(residual, frame, memory, rows, columns)
        add_product(frame, residual, np.float32(-1), rows, columns, False)
    return largest, whole


@kernel
def _add_values(values: Values, out: Values) -> np.uint32:
    largest, bits = np.uint32(0), out.view(np.uint32)
    for place in range(out.size):
        out[place] += values[place]
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
    """Begin where the frame before ended; at fixed directions if that is zeros. A row's magnitudes sum to at most 1."""
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
    """The product right @ values.T; values are read once for two vectors."""
    rank, columns = right.shape
    for row in range(vectors.shape[1]):
        line = values[row * columns : (row + 1) * columns]
        for number in range(0, rank, 2):
            other = min(number + 1, rank - 1)
            vectors[number, row], vectors[other, row] = _dot_two(line, right[number], right[other])


@summing_kernel
def _dot_two(line: Values, one: Values, other: Values) -> tuple[np.float32, np.float32]:
    by_one, by_other = np.float32(0), np.float32(0)
    for column in range(line.size):
        by_one += line[column] * one[column]
        by_other += line[column] * other[column]
    return by_one, by_other


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
    """The product left @ values / rows; `right` is read and written once for four rows."""
    rank, columns = right.shape
    rows = left.shape[1]
    fours, share = rows - rows % 4, np.float32(1) / np.float32(rows)
    right[:] = 0
    for row in range(0, fours, 4):
        for number in range(rank):
            _add_four(left[number, row : row + 4], share, values[row * columns : (row + 4) * columns], right[number])
    for row in range(fours, rows):
        for number in range(rank):
            weight = left[number, row] * share
            for column in range(columns):
                right[number, column] += weight * values[row * columns + column]


@summing_kernel
def _add_four(weights: Values, share: np.float32, lines: Values, out: Values) -> None:
    columns = out.size
    first, second = lines[:columns], lines[columns : 2 * columns]
    third, fourth = lines[2 * columns : 3 * columns], lines[3 * columns :]
    one, two, three, four = weights[0] * share, weights[1] * share, weights[2] * share, weights[3] * share
    for column in range(columns):
        out[column] += one * first[column] + two * second[column] + three * third[column] + four * fourth[column]


@kernel
def add_product(frame: Values, out: Values, sign: np.float32, rows: int, columns: int, anew: bool) -> None:
    """Add without sums whose order the compiler chooses: all ranks get the same, whatever their processors."""
    rank = frame.size // (rows + columns)
    left, right = frame[: rank * rows].reshape((rank, rows)), frame[rank * rows :].reshape((rank, columns))
    product = np.zeros(columns, np.float32)
    for row in range(rows):
        line = out[row * columns : (row + 1) * columns]
        if anew:
            line[:] = 0  # it is in the nearest cache then
        for number in range(rank - 1):
            _weigh(left[number, row], right[number], product, number == 0)
        last, weight = right[rank - 1], left[rank - 1, row]
        for column in range(columns):
            line[column] += sign * (product[column] + weight * last[column])


@kernel
def _weigh(weight: np.float32, values: Values, product: Values, anew: bool) -> None:
    for column in range(product.size):
        product[column] = weight * values[column] + (np.float32(0) if anew else product[column])


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
