"""The work of tasks: one learns from its share of a batch, one sums a slice of all tasks' gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.func import functional_call

if TYPE_CHECKING:
    from volary.network.criterion import Criterion

LOSS, USED = "loss", "used"  # names that no buffer has: those are behind BUFFER
BUFFER = "buffer."


class TaskShare(NamedTuple):
    """A task's share of a batch: `share` is its factor of the batch's loss; samples: inputs and targets, packed."""

    task: int
    share: float
    samples: bytes


class GradientSlice(NamedTuple):
    """A slice of gradients: of one task, or summed. abouts: what else is known of each task, with its first slice."""

    number: int
    task: int
    values: bytes
    abouts: list[bytes]


@dataclass(frozen=True)
class SharedNetwork:
    """A network as it travels to tasks, without its values. skeleton: on torch's meta device, in any mode.

    first: of each name of a parameter or buffer the first one of the same tensor. trained: names, in the order in which
    their gradients are one vector of `dtype`, NumPy's. training: of all parts, in their order, whether they are in that
    mode. slices: into which a task cuts its gradients.
    """

    skeleton: nn.Module
    criterion: Criterion
    first: Mapping[str, str]
    trained: Sequence[str]
    dtype: str
    training: Sequence[bool]
    slices: int
    seed: int

    def learnt(self, state: bytes, given: TaskShare) -> Iterator[GradientSlice]:
        """Learn from a share of a batch, and yield the slices of its gradients. state: the network's, packed."""
        values, about = self._gradients(load(state), load(given.samples), given.task, given.share)
        for number, piece in enumerate(np.array_split(values, self.slices)):
            yield GradientSlice(number, given.task, piece.tobytes(), [] if number else [about])

    def summed(self, slices: Iterable[GradientSlice]) -> Iterator[GradientSlice]:
        """Add up all tasks' values of each slice, in the tasks' order: the same sums each time."""
        for number, mine in groupby(sorted(slices, key=lambda one: one[:2]), key=lambda one: one.number):
            first, *others = mine
            if not others:
                yield first
                continue
            total = np.frombuffer(first.values, self.dtype).copy()
            for other in others:
                total += np.frombuffer(other.values, self.dtype)
            abouts = [about for one in (first, *others) for about in one.abouts]
            yield GradientSlice(number, first.task, total.tobytes(), abouts)

    def _gradients(
        self, state: dict[str, Tensor], samples: Mapping[str, Tensor], task: int, share: float
    ) -> tuple[np.ndarray[Any, Any], bytes]:
        """The gradients, one vector (values,), of `share` times the mean loss; and the rest that is known of them."""
        torch.manual_seed(self.seed + task)
        for part, training in zip(self.skeleton.modules(), self.training, strict=True):
            part.training = training
        leaves = [state[name].requires_grad_() for name in self.trained]
        output = functional_call(
            self.skeleton, {name: state[first] for name, first in self.first.items()}, (samples["inputs"],)
        )
        loss = self.criterion(output, samples["targets"])
        found = torch.autograd.grad(loss * share, leaves, allow_unused=True)
        about = {LOSS: loss.detach().double(), USED: torch.tensor([one is not None for one in found])}
        if task == 0:  # as with other partitions the first rank's are those of the network
            buffers = set(self.first.values()) - {name for name, _ in self.skeleton.named_parameters()}
            about |= {BUFFER + name: state[name].detach().contiguous() for name in buffers}
        flat = [
            (torch.zeros_like(leaf) if one is None else one).reshape(-1)
            for leaf, one in zip(leaves, found, strict=True)
        ]
        return torch.cat(flat).numpy(), save(about)
