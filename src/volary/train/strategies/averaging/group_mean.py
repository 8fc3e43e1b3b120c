"""Local steps of a group: workers that hold a replica together, and have samples of their own, update it as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import add_up

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn

    from volary.comm.groups.layer_group import LayerGroup


class GroupMean:
    """Makes gradients of `parameters`, which all of `layers` have whole, the same on all of these.

    layers: with parts of other parameters, whose gradients are of all their samples already. share: this worker's, of
    all that the batch at hand counts on all workers of the run, by which its loss is weighed; set before each update.
    """

    def __init__(self, layers: LayerGroup, parameters: Sequence[nn.Parameter]) -> None:
        self._layers, self._parameters, self.share = layers, list(parameters), 0.0

    @property
    def size(self) -> int:
        """How many workers update the replica."""
        return self._layers.size

    def take(self) -> float:
        """Let gradients be sums over the group; return its share, which turns them into means. A collective call.

        A parameter that none of its workers has used has no gradient. 0: nothing of the batch is the group's.
        """
        used = [float(one.grad is not None) for one in self._parameters]
        counts = torch.tensor([self.share, *used], dtype=torch.float64)
        with self._waiting():
            add_up(counts, self._layers.group)
            share, *users = counts.tolist()
            trained = [one for one, count in zip(self._parameters, users, strict=True) if count]
            for kind in dict.fromkeys(one.dtype for one in trained):
                self._add_up([one for one in trained if one.dtype == kind])
        return float(share)

    def _add_up(self, parameters: Sequence[nn.Parameter]) -> None:
        flat = torch.cat([_gradient(one).flatten() for one in parameters])
        add_up(flat, self._layers.group)
        for one, total in zip(parameters, flat.split([one.numel() for one in parameters]), strict=True):
            one.grad = total.view(one.shape)

    def _waiting(self) -> AbstractContextManager[None]:
        return self._layers.waiting()


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
