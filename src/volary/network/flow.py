"""A flow: one named computation of a network, from a batch to a loss. Several flows share one module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from volary.network._criterion import Criterion
from volary.network._dry_run import DRY_SAMPLES, refuse_merged_samples, try_once
from volary.network._evaluating import evaluating


class Flow:
    """Feeds inputs to `module` and gives its output with the targets to `criterion`.

    name: what this flow is for, such as "train" or "evaluate". The module is used, never copied.
    """

    def __init__(self, module: nn.Module, criterion: Criterion, name: str) -> None:
        self.module = module
        self.criterion = criterion
        self.name = name

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss over the samples given: a scalar to call `backward()` on.

        Without a sample the network does not run (batch norm could not): the loss is 0, every gradient zeros.
        """
        if not inputs.shape[0]:
            return self._zero_loss()
        return self.criterion(self.module(inputs), targets)

    def measure(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Totals over the samples given, in evaluation mode, without gradients; the module's mode is restored.

        Returns float64 (len(criterion.measured), 2), to be added over batches and ranks and handed to `figures`.
        """
        if not inputs.shape[0]:
            return self.no_totals(inputs.device)
        with evaluating(self.module), torch.no_grad():
            return self.criterion.totals(self.module(inputs), targets)

    def no_totals(self, device: torch.device | str = "cpu") -> Tensor:
        """The totals of no sample at all: where adding starts."""
        return torch.zeros(len(self.criterion.measured), 2, dtype=torch.float64, device=device)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The averages that the added totals make, by name: loss, accuracy, ..."""
        return self.criterion.figures(totals)

    def dry_run(
        self,
        input_shape: tuple[int, ...],
        input_dtype: torch.dtype,
        classes: int | None,
        *,
        target_shape: tuple[int, ...] | None = None,
        network: str = "network",
    ) -> None:
        """Raise SettingError, one sentence, if the network refuses such inputs or its output does not fit the loss.

        input_shape and target_shape are of one sample; network: its name in the message. Runs the module once, in
        evaluation mode, on two samples of zeros on its own device; neither its state nor any random generator moves.
        Call it before a strategy hooks into the module.
        """
        output: Any = try_once(self.module, input_shape, input_dtype, network)
        refuse_merged_samples(output, network, DRY_SAMPLES)
        self.criterion.check(network, output, target_shape, classes)

    def _zero_loss(self) -> Tensor:
        """A zero that depends on no value of any trainable parameter (0 * NaN is NaN) and yet gives each a gradient."""
        nothing = [(p if p.dim() else p.unsqueeze(0))[:0].sum() for p in self.module.parameters() if p.requires_grad]
        return sum(nothing[1:], nothing[0]) if nothing else torch.zeros(())
