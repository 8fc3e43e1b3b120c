"""Random generators: seeded for everything, kept in every checkpoint."""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_STRIDE = 2**20 + 7  # prime
_TWISTER = struct.Struct("i624I")  # a Mersenne Twister: which of its numbers is next, and all; NumPy has that last


def seed_all(seed: int) -> None:
    """Seed Python's, NumPy's and torch's generators (CPU and CUDA)."""
    _seed_beside_torch(seed)
    torch.manual_seed(seed)


def seed_contribution(seed: int, worker: int, clock: int) -> None:
    """Seed them for one contribution of a worker: a resumed run draws what an uninterrupted one would."""
    mixed = ((seed * _STRIDE + worker + 1) * _STRIDE + clock) % 2**63
    _seed_beside_torch(mixed)
    torch.default_generator.manual_seed(mixed)
    if torch.cuda.is_available():  # else torch writes down who asked, at length
        torch.cuda.manual_seed_all(mixed)


def _seed_beside_torch(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)


def generators_state() -> dict[str, Any]:
    """The state of every generator, in values that a weights-only reader accepts."""
    return {"python": random.getstate(), "numpy": _numpy_state(), **_torch_states()}


class StepGenerators:
    """The states of every generator, for who keeps them with each step.

    Python's and NumPy's are of 624 numbers each. To copy these one by one takes longer than all else that a step keeps:
    they are copied anew only if something was drawn since, which is seen in their memory.
    """

    def __init__(self) -> None:
        self._python = _Twister(random.getstate, _place_of_python(), lambda state: state[2] is not None)
        self._numpy = _Twister(_numpy_state, _place_of_numpy(), lambda state: bool(state[3]))

    def state(self) -> dict[str, Any]:
        """As of `generators_state`; what has not changed is the same object as before."""
        return {"python": self._python.state(), "numpy": self._numpy.state(), **_torch_states()}


class _Twister:
    """A Mersenne Twister. copied: gives a copy of its state. place: gives the address of its memory; 0: always copy.

    waits: whether a normal number is in a state that will be drawn without a change of that memory.
    """

    def __init__(self, copied: Callable[[], Any], place: Callable[[], int], waits: Callable[[Any], bool]) -> None:
        self._copied, self._place, self._waits = copied, place, waits
        self._state: Any = None
        self._memory = b""  # of this state

    def state(self) -> Any:
        place = self._place()
        memory = ctypes.string_at(place, _TWISTER.size) if place else b""
        if not memory or memory != self._memory or self._waits(self._state):
            self._state, self._memory = self._copied(), memory
        return self._state


def _place_of_python() -> Callable[[], int]:
    one = random._inst  # the generator of the module's functions
    _, (*words, index), _ = random.getstate()
    at = id(one) + object.__basicsize__ if sys.implementation.name == "cpython" else 0
    known = at and ctypes.string_at(at, _TWISTER.size) == _TWISTER.pack(index, *words)
    return lambda: at if known else 0


def _place_of_numpy() -> Callable[[], int]:
    bits = np.random.get_bit_generator()  # type: ignore[attr-defined]  # absent from NumPy's stubs
    _, words, index, *_ = np.random.get_state(legacy=True)
    at = bits.ctypes.state_address
    known = ctypes.string_at(at, _TWISTER.size) == np.asarray(words).tobytes() + struct.pack("i", index)
    return lambda: at if known and np.random.get_bit_generator() is bits else 0  # type: ignore[attr-defined]


def _numpy_state() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest


def _torch_states() -> dict[str, Any]:
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def restore_generators(state: dict[str, Any]) -> None:
    """Set every generator to what `generators_state` gave."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


@contextmanager
def kept_generators() -> Iterator[None]:
    """Afterwards every generator is as it was before."""
    before = generators_state()
    try:
        yield
    finally:
        restore_generators(before)
