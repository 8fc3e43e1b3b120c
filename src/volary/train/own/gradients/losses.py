"""The loss of a user's own loop, which nobody passes to Volary: the tensor that backward was called on."""

from __future__ import annotations

import sys
from math import isnan, nan
from typing import TYPE_CHECKING, Any

import torch

from volary.network.loss_graph import mean_of_some_in, sum_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from torch import Tensor

    from volary.train.recording.recorder import Recorder

_BACKWARD = torch.autograd.backward.__code__  # Tensor.backward calls it, too


class StepLoss:
    """The loss of a step, summed up over its backward passes; NaN as long as nobody knows it.

    part: this worker's, in the mean over all workers' samples. recorder: is told once if it is a sum, where gradients
    are taken as those of a mean; None: that is known.
    """

    def __init__(self, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self.part = self._own = self._agreed = nan

    def add(self, loss: float, weight: float, *, first: bool) -> None:
        """A backward pass. weight: of its gradients. first: of those whose losses add up to the step's."""
        if first and not isnan(self._own):
            return  # the step has one: this backward is of another kind, a penalty say
        own, part = (0.0, 0.0) if first else (self._own, self.part)
        self._own, self.part, self._agreed = own + loss, part + (loss * weight if weight else 0.0), nan

    def judge(self, loss: Tensor, samples: int) -> None:
        """Look at the first one, a scalar, before its graph is let go of. samples: of this worker's share."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None and (how := sum_in(loss, samples)) and recorder.leads:
            text = f"the loss is a sum over samples ({how}), and gradients are taken as those of a mean, as"
            accepted = 'DistributedDataParallel does; accepted for a sum: worker.distribute(..., loss="sum")'
            recorder.event("warning", text=f"{text} {accepted}")

    def agree(self, loss: float) -> None:
        """Note the mean over all workers' samples. The first of a step counts."""
        if isnan(self._agreed):
            self._agreed = loss

    @property
    def own(self) -> float:
        """This worker's loss of the step, so far."""
        return self._own

    @property
    def state(self) -> tuple[float, float, float]:
        """Losses of the step that were added, and agreed on, so far."""
        return self.part, self._own, self._agreed

    def go_on_from(self, state: tuple[float, float, float]) -> None:
        """Take back losses that were added since then."""
        self.part, self._own, self._agreed = state

    def take(self) -> float:
        """Return the ended step's loss, and begin anew: all workers' loss, or this worker's if they agreed on none."""
        own, agreed = self._own, self._agreed
        self.part = self._own = self._agreed = nan
        return own if isnan(agreed) else agreed


def loss_of_backward() -> Tensor | None:
    """Called in a hook: the scalar on the CPU that the user's code called backward on; None if it was none.

    On a GPU autograd calls hooks from a thread of its own, and a scalar there is not waited for.
    """
    found: Any = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # the top_level: reentrant checkpointing calls backward within backward
        if frame.f_code is _BACKWARD:
            found = frame.f_locals["tensors"]
        frame = frame.f_back
    root = found[0] if isinstance(found, list | tuple) and found else found
    scalar = isinstance(root, torch.Tensor) and root.numel() == 1 and root.device.type == "cpu"
    return root if scalar else None


class LossWatch:
    """Warns, once, of a loss that is a mean over a part of the batch, where workers are weighted by their samples.

    samples: of this worker's share of the newest batch; 0 where nobody knows; None: the loop says what counts. Each
    worker looks at its own losses: in some shares everything counts.
    """

    def __init__(self, recorder: Recorder, samples: Callable[[], int | None]) -> None:
        self._recorder, self._samples = recorder, samples
        self._torch, self._instead = torch.autograd.backward, self._backward
        # no hook of torch's is called before the graph is let go of
        torch.autograd.backward = self._instead

    def close(self) -> None:
        """Let torch's own function be called again."""
        if torch.autograd.backward is self._instead:
            torch.autograd.backward = self._torch

    def _backward(self, tensors: Any, *more: Any, **named: Any) -> None:
        root = tensors[0] if isinstance(tensors, list | tuple) and tensors else tensors
        samples = self._samples()
        # on a GPU what autograd has kept would be waited for
        looks = isinstance(root, torch.Tensor) and root.numel() == 1 and root.device.type == "cpu"
        if looks and samples is not None and (how := mean_of_some_in(root, samples)):
            self.close()
            text = f"the loss is a mean over a part of the batch ({how}), and workers are weighted by their samples"
            accepted = "accepted: worker.weigh(count) before backward(), with what this worker's loss divides by"
            self._recorder.event("warning", text=f"{text}; {accepted}")
        self._torch(tensors, *more, **named)
