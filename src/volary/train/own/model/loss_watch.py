"""Looks at each loss of a loop of one's own before its backward, which lets go of what autograd shows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from volary.network.loss_graph import mean_of_some_in

if TYPE_CHECKING:
    from volary.train.recording.recorder import Recorder


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
