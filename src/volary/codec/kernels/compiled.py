"""The one place that knows Numba: compiled CPU loops, and tensors as the arrays that they read and write.

Imported inside the methods of codecs, since it imports Numba and torch. Without Numba, as on other devices than CPUs,
codecs use torch operations that give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

try:
    from numba import njit
except ImportError:  # platforms that it is not built for
    njit = None

MAGNITUDE = np.uint32(0x7FFFFFFF)  # all bits of a float but its sign
INFINITE = np.uint32(0x7F800000)

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a loop over arrays; it runs without the interpreter's lock, and rounds as it is written."""
    return _compiled(function, False)


def summing_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a loop with sums of floats, whose order is the compiler's: other processors round otherwise."""
    return _compiled(function, {"reassoc", "contract"})


def _compiled(function: Callable[P, R], fastmath: Any) -> Callable[P, R]:
    if njit is None:
        return function
    # what is divided by zero is a value like others: a Python exception would keep the loop from being vectorised
    how = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        loop: Callable[P, R] = njit(cache=True, **how)(function)
    except RuntimeError:  # no folder that Numba may write: it compiles anew in each process
        loop = njit(**how)(function)
    return loop


def compiled(tensor: Tensor) -> bool:
    """Whether kernels are there for the device of `tensor`, of any shape."""
    return njit is not None and tensor.device.type == "cpu"


def read(tensor: Tensor, kind: type[np.generic] = np.float32) -> NDArray[Any]:
    """The values of a tensor of any shape, (numel,) as numbers of `kind`; a copy where they do not lie so.

    Of a tensor with gaps its `contiguous` is to be given: for arrays with gaps loops would be compiled a second time.
    """
    return tensor.numpy().reshape(-1).view(kind)


@kernel
def largest_magnitude(bits: NDArray[np.uint32]) -> np.uint32:
    """The bits of the largest magnitude, from bits of floats: NaN is above infinity, and both are above all others."""
    largest = np.uint32(0)
    for place in range(bits.size):
        largest = max(largest, bits[place] & MAGNITUDE)
    return largest


def change(tensor: Tensor, loop: Callable[[NDArray[Any]], object]) -> None:
    """Let `loop` change the values of a tensor of any shape, which it gets as `read` gives them."""
    if tensor.is_contiguous():
        loop(read(tensor))
    else:
        together = tensor.contiguous()
        loop(read(together))
        tensor.copy_(together)
