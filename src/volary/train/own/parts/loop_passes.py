"""The passes of a batch that a user's own loop gives to `worker.learn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volary.data.batching.no_samples import NoSamples
from volary.errors import BadInput

if TYPE_CHECKING:
    from torch import nn

    from volary.network.criterion import Criterion
    from volary.partition._base import Passes
    from volary.train.recording.recorder import Recorder

LossFunction = Callable[[Any, Any], Tensor]


@dataclass(frozen=True)
class LoopPasses:
    """See `volary.partition._base.Passes`. loss_function: of outputs and targets, the mean over samples, or their sum.

    on_loss: called with the loss before its gradients are added, where no backward pass of autograd begins with it.
    losses: takes what was computed. share: of the mean over the batch; of a sum all have 1.
    """

    model: nn.Module
    inputs: Tensor
    targets: Tensor
    loss_function: LossFunction
    recorder: Recorder
    on_loss: Callable[[Tensor], None]
    summed: bool
    share: float = 1.0
    losses: list[Tensor] = field(default_factory=list)

    def forward(self) -> Tensor:
        """The loss of this worker's samples. Raises BadInput if it is none."""
        return self._loss(self.model(self.inputs))

    def computed(self, loss: Tensor) -> bool:
        """Keep the loss; its backward is always wanted."""
        self.losses.append(loss.detach())
        return True

    def cut(self, count: int) -> Sequence[Passes]:
        """Micro-batches that differ by a sample at most; of no sample one, without rows."""
        pieces, samples = max(1, min(count, len(self.inputs))), max(1, len(self.inputs))
        parts = zip(self.inputs.tensor_split(pieces), self.targets.tensor_split(pieces), strict=True)
        return [
            replace(self, inputs=x, targets=y, share=1.0 if self.summed else self.share * len(x) / samples, losses=[])
            for x, y in parts
        ]

    @property
    def criterion(self) -> Criterion:
        """Raises BadInput: it is the loop that has the loss."""
        raise BadInput("worker.learn has a function of outputs and targets, and no loss that has a name")

    def waiting(self) -> AbstractContextManager[None]:
        """Around a wait for other ranks."""
        return self.recorder.waiting()

    def through(self, module: nn.Module, x: Tensor) -> Tensor:
        """Return the output of a part of the model for `x`, of any shape."""
        self.recorder.enter("forward")
        y: Tensor = module(x if len(self.inputs) else x.as_subclass(NoSamples))
        return y

    def turn_back(self) -> None:
        """A backward pass begins."""
        self.recorder.enter("backward")

    def loss_of(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a micro-batch, and the gradient of `output` (count, ...) by its share of it."""
        loss = self._loss(output)
        (gradient,) = torch.autograd.grad(loss * self.share, output)
        return loss.detach(), gradient

    def add_gradients(self, gradients: Mapping[nn.Parameter, Tensor]) -> None:
        """Give parameters their gradients as a backward pass does, with all that follows one."""
        self.on_loss(self.losses[-1])
        torch.autograd.backward(list(gradients), list(gradients.values()))

    def update(self, gradients: Mapping[nn.Parameter, Tensor], scale: float) -> None:
        """Raises BadInput: the loop's own optimisers update, once a step."""
        raise BadInput("worker.learn updates nothing within a batch; accepted: partition.updates=batch")

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of the loss, which get their share as they leave."""
        loss.backward()

    def _loss(self, output: Any) -> Tensor:
        loss = self.loss_function(output, self.targets)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise BadInput(
                f"worker.learn: the loss function gave a {_named(loss)}; accepted: a tensor of one value, the mean "
                'over the samples that it is given, or their sum with worker.distribute(..., loss="sum")'
            )
        return loss.reshape(())


def refuse_batch(inputs: Any, targets: Any) -> None:
    """Raise BadInput unless these are tensors of as many samples."""
    if not isinstance(inputs, Tensor) or not isinstance(targets, Tensor) or inputs.shape[:1] != targets.shape[:1]:
        raise BadInput(
            f"worker.learn was given a {_named(inputs)} and a {_named(targets)}; accepted: tensors of inputs and "
            "targets, of as many samples"
        )


def _named(value: Any) -> str:
    return f"tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
