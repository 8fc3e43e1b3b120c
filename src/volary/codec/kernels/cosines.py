"""Discrete cosine transforms of tiles of a matrix, of which the largest coefficients stay: the loops of codec `dct`.

A tile's frame is that of a block of codec `topk`: offsets of coefficients, and these. Sums are in one order, which no
compiler may change: whatever their processors, all ranks get the same values from a frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.codec.kernels import largest
from volary.codec.kernels.compiled import compiled, kernel, read

if TYPE_CHECKING:
    from volary.codec.dct import Dct

FAR = 2.0**100  # coefficients of values beyond it are computed of values that are
NEARER = 2.0**-20  # times as large, so that no sum is infinite
LARGEST = float(np.finfo(np.float32).max)

Values = NDArray[np.float32]


def encode(codec: Dct, values: Tensor, frame: Tensor) -> bool:
    """Write the frame of `values` (rows, columns). Whether all were finite."""
    return all(_encode(codec, tiles, frames) for tiles, frames in _tiles(codec, values, frame))


def add(codec: Dct, frame: Tensor, out: Tensor, sign: int) -> None:
    """Add the values of a frame, times `sign`, to `out` (rows, columns)."""
    for tiles, frames in _tiles(codec, out, frame):
        decoded = torch.zeros(tiles.shape, device=tiles.device)
        rows, columns = (cosines(side, tiles.device) for side in tiles.shape[1:])
        count = codec.count(len(rows) * len(columns))
        if compiled(decoded):
            _decode(read(frames, np.uint32), decoded.numpy(), rows.numpy(), columns.numpy(), count)
        else:
            _decode_by_torch(frames, decoded, rows, columns, count)
        tiles.add_(decoded, alpha=sign)


def _tiles(codec: Dct, values: Tensor, frame: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Tiles (n, height, width), views of `values`, and their frames (n, bytes), views of `frame`.

    They are squares, and beside and below them what is left.
    """
    at = 0
    for strip in values.split(codec.side):
        whole = strip.shape[1] // codec.side * codec.side
        for part in (strip[:, :whole], strip[:, whole:]):
            if part.numel():
                tiles = part.unflatten(1, (-1, min(codec.side, part.shape[1]))).transpose(0, 1)
                size_bytes = len(tiles) * codec.frame_bytes(*tiles.shape[1:])
                yield tiles, frame[at : at + size_bytes].view(len(tiles), -1)
                at += size_bytes


@cache
def cosines(side: int, device: torch.device) -> Tensor:
    """The orthonormal DCT-II of so many values, (side, side): a row for each frequency."""
    frequencies, places = torch.arange(side).double().unsqueeze(1), torch.arange(side).double()
    waves: Tensor = torch.cos(torch.pi / side * (places + 0.5) * frequencies) * (2 / side) ** 0.5
    waves[0] /= 2**0.5
    return waves.float().to(device)


def _encode(codec: Dct, tiles: Tensor, frames: Tensor) -> bool:
    most = tiles.abs().amax((1, 2), keepdim=True)
    if not bool(most.isfinite().all()):
        return False
    count, (height, width) = codec.count(tiles[0].numel()), tiles.shape[1:]
    nearer = torch.where(most > FAR, NEARER, 1.0)
    scaled = (tiles * nearer).contiguous()
    coefficients = torch.zeros_like(scaled)
    rows, columns = cosines(height, tiles.device), cosines(width, tiles.device)
    if compiled(tiles):
        _transform(scaled.numpy(), coefficients.numpy(), rows.numpy(), columns.numpy())
    else:
        _transform_by_torch(scaled, coefficients, rows, columns)
    # no sum of as many waves as travel is infinite
    limit = LARGEST / max(1.0, 2.1 * count / (height * width) ** 0.5)
    coefficients = torch.minimum(torch.maximum(coefficients, -limit * nearer), limit * nearer) / nearer
    return largest.encode_rows(coefficients.view(len(tiles), -1), frames, count)


@kernel
def _transform(tiles: Values, out: Values, rows: Values, columns: Values) -> None:
    """Write rows @ tile @ columns.T of each of `tiles` (n, height, width) to `out`, which is zeros."""
    count, height, width = tiles.shape
    between = np.empty((height, width), np.float32)
    turned = np.empty((width, width), np.float32)
    for place in range(width):
        for frequency in range(width):
            turned[place, frequency] = columns[frequency, place]
    for tile in range(count):
        between[:] = 0
        for row in range(height):
            _add_lines(between[row], turned, tiles[tile, row])
        for frequency in range(height):
            _add_lines(out[tile, frequency], between, rows[frequency])


@kernel
def _add_lines(out: Values, lines: Values, weights: Values) -> None:
    """Add each of `lines` (n, m), times its weight, in order; `out` (m,) is read and written once for four of them."""
    fours = weights.size - weights.size % 4
    for line in range(0, fours, 4):
        first, second, third, fourth = lines[line], lines[line + 1], lines[line + 2], lines[line + 3]
        one, two, three, four = weights[line], weights[line + 1], weights[line + 2], weights[line + 3]
        for place in range(out.size):
            total = out[place] + one * first[place]
            total += two * second[place]
            total += three * third[place]
            out[place] = total + four * fourth[place]
    for line in range(fours, weights.size):
        _add_weighed(out, lines[line], weights[line])


@kernel
def _add_weighed(out: Values, values: Values, weight: np.float32) -> None:
    for place in range(out.size):
        out[place] += weight * values[place]


@kernel
def _decode(frame: NDArray[np.uint32], out: Values, rows: Values, columns: Values, count: int) -> None:
    """Add the waves of each tile's coefficients to `out` (n, height, width)."""
    tiles, height, width = out.shape
    size, at = (count + 1) // 2 + count, 0
    for tile in range(tiles):
        where, what = frame[at : at + size].view(np.uint16), frame[at + size - count : at + size].view(np.float32)
        for chosen in range(count):
            frequency = where[chosen] // width
            if frequency < height:  # a damaged frame does not write elsewhere
                for row in range(height):
                    weight = what[chosen] * rows[frequency, row]
                    _add_weighed(out[tile, row], columns[where[chosen] % width], weight)
        at += size


def _transform_by_torch(tiles: Tensor, out: Tensor, rows: Tensor, columns: Tensor) -> None:
    between = torch.zeros_like(tiles)
    for place in range(tiles.shape[2]):
        between += tiles[:, :, place : place + 1] * columns[:, place]
    for row in range(tiles.shape[1]):
        out += rows[:, row : row + 1] * between[:, row : row + 1]


def _decode_by_torch(frames: Tensor, out: Tensor, rows: Tensor, columns: Tensor, count: int) -> None:
    _, height, width = out.shape
    offsets, values = frames.view(torch.int16)[:, :count].int() & 0xFFFF, frames.view(torch.float32)[:, -count:]
    for chosen in range(count):
        offset, value = offsets[:, chosen].long(), values[:, chosen]
        inside = offset < height * width  # a damaged frame does not write elsewhere
        frequency = torch.where(inside, offset // width, 0)
        waves = (value.unsqueeze(1) * rows[frequency]).unsqueeze(2) * columns[offset % width].unsqueeze(1)
        out += torch.where(inside.view(-1, 1, 1), waves, 0.0)
