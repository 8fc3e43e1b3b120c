"""The parameters of one worker whose replica differs from all others: what a checkpoint keeps of them, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor


def turn_of(state: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """The state of a worker that joins one with this `state`: whose turn is next, and no values of its own.

    workers: in the group that both are in then. Empty if all parameters travel at once.
    """
    turn = {name: state[name] for name in ("next", "due", "given") if name in state}
    return {**turn, "workers": workers, "values": {}} if turn else {}


class RankParameters:
    """The values, by name, that this worker's parameters get back: while the network has others, or from a checkpoint.

    workers: of the run; a checkpoint of another number has no values for this one.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.values: Mapping[str, Tensor] = {}

    def state(self, now: Mapping[str, Tensor]) -> dict[str, Any]:
        """The values, and of how many workers this is one. now: the parameters, if they have their values."""
        return {"workers": self._workers, "values": dict(self.values or now)}

    def restore(self, states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Take the values of this worker's state, the first, and return it; {} if there is none of as many workers."""
        if not states or states[0]["workers"] != self._workers:
            return {}
        self.values = states[0]["values"]
        return states[0]

    @torch.no_grad()
    def give_back(self, parameters: Mapping[str, Tensor]) -> None:
        """Let parameters have their values again, if there are any."""
        for name, values in self.values.items():
            parameters[name].copy_(values)
        self.values = {}
