"""A flow: one named computation of a network, from a batch to a loss. Several flows share one module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from volary.network.criterion import Criterion
from volary.network.dry_run import try_once
from volary.network.evaluating import evaluating


class Flow:
    """Feeds inputs to `module` and gives its output with the targets to `criterion`.

    name: what this flow is for, such as "train" or "evaluate". positions: values of a sample's target, of data whose
    samples all have as many. absent: of a network that workers run together, what one without a sample does meanwhile;
    it gives a scalar 0 to call `backward()` on. The module is used, never copied.
    """

    def __init__(
        self,
        module: nn.Module,
        criterion: Criterion,
        name: str,
        positions: int = 1,
        absent: Callable[[], Tensor] | None = None,
    ) -> None:
        self.module = module
        self.criterion = criterion
        self.name = name
        self.positions, self.absent = positions, absent

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss over the samples given, or over what counts of them: a scalar to call `backward()` on.

        Without a sample it is `nothing`.
        """
        if not inputs.shape[0]:
            return self.nothing()
        return self.criterion(self.module(inputs), targets)

    def counted(self, targets: Tensor) -> float:
        """Count what the loss of targets (n, ...) divides by, in samples: n if every position counts."""
        found = self.criterion.counted(targets)
        return float(len(targets)) if found is None else found / self.positions

    def nothing(self) -> Tensor:
        """The loss where nothing counts, a scalar: the network does not run (batch norm could not without a sample).

        A zero that depends on no value of any trainable parameter (0 * NaN is NaN) and yet gives each a gradient.
        """
        if self.absent is not None:
            return self.absent()
        empty = [(p if p.dim() else p.unsqueeze(0))[:0].sum() for p in self.module.parameters() if p.requires_grad]
        return sum(empty[1:], empty[0]) if empty else torch.zeros(())

    def measure(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """`Criterion.totals` of samples (n, ...), in evaluation mode, without gradients; the module's mode is restored.

        Returns float64 (len(criterion.measured), 2), to be added over batches and ranks and handed to `figures`.
        """
        if not inputs.shape[0]:
            with torch.no_grad():
                self.nothing()
            return self.no_totals(inputs.device)
        with evaluating(self.module), torch.no_grad():
            return self.criterion.totals(self.module(inputs), targets)

    def no_totals(self, device: torch.device | str = "cpu") -> Tensor:
        """The totals of no sample at all, (len(criterion.measured), 2): where adding starts."""
        return torch.zeros(len(self.criterion.measured), 2, dtype=torch.float64, device=device)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The averages that the added totals make, by name: loss, accuracy, ...; a metric of NaN if nothing counted."""
        return self.criterion.figures(totals) or {self.criterion.metric: nan}

    def dry_run(
        self,
        inputs: Tensor,
        targets: Tensor,
        classes: int | None,
        *,
        network: str = "network",
        loss: str = "loss",
        casting: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Raise SettingError, one sentence, if samples do not go through network, loss and backward.

        inputs, targets: of some samples, (n, ...). classes: how many the data has, if that is known. network, loss:
        their names in messages. casting: the context that forward runs in. The module is used as it is, in its mode,
        and is as before: its buffers, attributes, gradients and torch's random generators. Call it before a strategy
        hooks into the module.
        """
        try_once(
            self.module,
            self.criterion,
            inputs,
            targets,
            classes=classes,
            network=network,
            loss=loss,
            casting=casting or nullcontext(),
        )
