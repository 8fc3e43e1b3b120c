"""The first steps of a loop of one's own, as its driver compares them: do all workers do the same work?"""

from __future__ import annotations

import hashlib
import random
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from volary.train.recording.recorder import Recorder

STEPS = 3


class FirstSteps:
    """Records one worker's losses, and which random numbers it draws from a batch to the end of its step."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._losses: list[float] = []
        self._begun = dict[str, str]()
        self._drawn: set[str] | None = None  # generators that every step so far has drawn from
        self._fed = 0

    def begin(self, *, fed: bool) -> None:
        """A step begins. fed: with a batch of `worker.feed`, whose samples are read."""
        if len(self._losses) < STEPS:
            self._fed += fed
            self._begun = _generators()

    def end(self, loss: float) -> None:
        """A step ends. loss: this worker's own; NaN if nobody knows it."""
        if len(self._losses) == STEPS:
            return
        self._losses.append(loss)
        before, self._begun = self._begun, _generators()
        drawn = {name for name, state in self._begun.items() if before.get(name, state) != state}
        self._drawn = drawn if self._drawn is None else self._drawn & drawn
        if len(self._losses) == STEPS:
            known = self._losses if all(map(isfinite, self._losses)) and self._fed < STEPS else []
            states = {name: self._begun[name] for name in sorted(self._drawn)}
            self._recorder.first_steps([loss.hex() for loss in known], states)


def _generators() -> dict[str, str]:
    """Where each random generator is."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    states = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": f"{kind} {rest}".encode() + np.asarray(keys).tobytes(),
        "random": repr(random.getstate()).encode(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state().numpy().tobytes()
    return {name: hashlib.sha256(state).hexdigest() for name, state in states.items()}
