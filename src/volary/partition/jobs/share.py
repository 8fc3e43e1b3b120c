"""The work of tasks: one learns from its share of a batch, one sums a slice of all tasks' gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.func import functional_call

if TYPE_CHECKING:
    from volary.network.criterion import Criterion

GRADIENTS = "slice int, task int, values binary, about binary"  # about: of a task, beside its values of slice 0
SUMS = "slice int, values binary, abouts array<binary>"
LOSS, USED = "loss", "used"  # names that no buffer has: those are behind BUFFER
BUFFER = "buffer."


@dataclass(frozen=True)
class SharedNetwork:
    """A network as it travels to tasks, without its values. skeleton: on torch's meta device, in any mode.

    first: of each name of a parameter or buffer the first one of the same tensor. trained: names, in the order in which
    their gradients are one vector. training: of all parts, in their order, whether they are in that mode.
    """

    skeleton: nn.Module
    criterion: Criterion
    first: Mapping[str, str]
    trained: Sequence[str]
    training: Sequence[bool]
    slices: int
    seed: int

    def gradients(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Learn from shares of a batch, one a row of Arrow's; yield the slices of their gradients."""
        arrow: Any = import_module("pyarrow")
        for batch in batches:
            for row in batch.to_pylist():
                values, about = self._learnt(load(row["state"]), load(row["samples"]), row["task"], row["share"])
                pieces = np.array_split(values, self.slices)
                yield arrow.RecordBatch.from_pydict(
                    {
                        "slice": arrow.array(range(self.slices), arrow.int32()),
                        "task": arrow.array([row["task"]] * self.slices, arrow.int32()),
                        "values": [piece.tobytes() for piece in pieces],
                        "about": arrow.array([about] + [None] * (self.slices - 1), arrow.binary()),
                    }
                )

    def _learnt(
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


def sums(dtype: str, batches: Iterable[Any]) -> Iterator[Any]:
    """Add up all tasks' values of one slice, in the tasks' order: the same sum each time. dtype: NumPy's, of values."""
    arrow: Any = import_module("pyarrow")
    rows = sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["task"])
    if not rows:
        return
    total = np.frombuffer(rows[0]["values"], dtype).copy()
    for row in rows[1:]:
        total += np.frombuffer(row["values"], dtype)
    abouts = [row["about"] for row in rows if row["about"] is not None]
    yield arrow.RecordBatch.from_pydict(
        {
            "slice": arrow.array([rows[0]["slice"]], arrow.int32()),
            "values": [total.tobytes()],
            "abouts": arrow.array([abouts], arrow.list_(arrow.binary())),
        }
    )
