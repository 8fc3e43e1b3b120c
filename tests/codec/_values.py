"""Values of all kinds for codecs, and one encoding of them with guards around whatever is written."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as some

from volary.codec.kernels import compiled as _kernels

GUARD = 4  # bytes or values around what a codec may write; frames are aligned to 4 bytes, not to more
KINDS = ("normal", "zeros", "denormal", "huge", "one sign", "sparse", "equal", "all powers")


def values_of(kind, shape, seed):
    """(rows, columns) finite values of fp32."""
    draw = np.random.default_rng(seed)
    normal = draw.standard_normal(shape, dtype=np.float32)
    with np.errstate(under="ignore"):
        made = {
            "normal": normal,
            "zeros": np.zeros(shape, np.float32) * np.sign(normal),
            "denormal": normal * np.float32(1e-40),
            "huge": np.sign(normal) * np.finfo(np.float32).max,
            "one sign": -np.abs(normal),
            "sparse": normal * (draw.random(shape) < 0.05),
            "equal": np.full(shape, normal.sum()),
            "all powers": np.ldexp(np.sign(normal), draw.integers(-149, 128, shape)),
        }[kind]
    return torch.from_numpy(made.astype(np.float32))


def shapes(codec):
    """(rows, columns) as codecs get them: matrices if it is by rows, else runs, also of several blocks."""
    if codec.by_rows:
        return some.tuples(some.integers(0, 40), some.integers(0, 40))
    near = [codec.block + d for d in (-1, 0, 1)] + [2 * codec.block + 5]
    small = some.integers(0, 100)
    return some.tuples(some.just(1), small | some.sampled_from([n for n in near if n <= 200_000]))


def runs(codec):
    """Values of any kind in any shape, lying in memory one after the other or not."""

    def made(shape, kind, seed, scattered):
        values = values_of(kind, shape, seed)
        return apart(values) if scattered else values

    return some.builds(made, shapes(codec), some.sampled_from(KINDS), some.integers(0, 999), some.booleans())


def apart(values):
    """The same values, not contiguous."""
    rows, columns = values.shape
    return values.new_full((columns, rows, 2), 7.0)[..., 0].T.copy_(values)


def memory_of(codec, values):
    return torch.zeros(codec.memory_values(*values.shape))


def encoded(codec, values, memory=None, fill=0xAA):
    """The frame; fails if the codec wrote beside it or took a value for infinite."""
    size = codec.frame_bytes(*values.shape)
    around = torch.full((size + 2 * GUARD,), fill, dtype=torch.uint8)
    frame = around[GUARD : GUARD + size]
    assert codec.encode(values, frame, memory_of(codec, values) if memory is None else memory), "all were finite"
    assert (around[:GUARD] == fill).all() and (around[GUARD + size :] == fill).all(), "wrote beside the frame"
    return frame.clone()


def decoded(codec, frame, shape):
    """The values of the frame; fails if the codec wrote beside them."""
    rows, columns = shape
    around = torch.full((rows * columns + 2 * GUARD,), 7.0)
    codec.decode(frame, around[GUARD : GUARD + rows * columns].view(shape))
    assert (around[:GUARD] == 7).all() and (around[GUARD + rows * columns :] == 7).all(), "wrote beside the values"
    return around[GUARD : GUARD + rows * columns].view(shape).clone()


@dataclass(frozen=True)
class Bits:
    """Equal only if all bits are."""

    tensor: torch.Tensor

    def __eq__(self, other):
        return torch.equal(self.tensor.view(torch.int32), other.tensor.view(torch.int32))


@contextlib.contextmanager
def without_numba():
    """As on a machine that has no Numba: codecs use torch operations."""
    kept, _kernels.njit = _kernels.njit, None
    try:
        yield
    finally:
        _kernels.njit = kept
