"""The size of an image after a convolution or pooling."""

from __future__ import annotations


def after(side: int, kernel: int, stride: int = 1, padding: int = 0, *, ceil: bool = False) -> int:
    """Pixels a side that a window of `kernel` leaves; ceil: the last window may hang over the edge (Caffe's way)."""
    room = side + 2 * padding - kernel
    return (-(-room // stride) if ceil else room // stride) + 1
