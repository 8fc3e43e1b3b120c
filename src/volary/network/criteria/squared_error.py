"""Mean squared error of outputs that have the shape of their targets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from volary.errors import SettingError
from volary.network.criteria.fit import described, main_output
from volary.network.criteria.measures import Measures
from volary.network.metrics._base import Metric


class SquaredError:
    """The square of the difference, a mean over all values of all samples."""

    def __init__(self, metric: str, metrics: Sequence[Metric] = ()) -> None:
        self._measures = Measures(metric, metrics)
        self.metric = self._measures.metric
        self.higher_is_better = self._measures.higher_is_better

    def suit(self, classes: int) -> None:
        """Let metrics keep sums for so many classes. Raises SettingError if that does not suit one."""
        self._measures.suit(classes)

    @property
    def measured(self) -> tuple[str, ...]:
        """The loss, and the metrics, each for as many rows as it has."""
        return self._measures.names

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean; SettingError where torch would broadcast one shape to the other."""
        if output.shape != target.shape:
            raise SettingError(
                f"mse takes outputs of the targets' shape; got {tuple(output.shape)}, {tuple(target.shape)}"
            )
        return mse_loss(output, target.to(output.dtype))

    def counted(self, target: Tensor) -> None:
        """None, as each value counts alike."""

    def totals(self, output: Tensor, target: Tensor) -> Tensor:
        """A row each: the samples' errors, and how many samples."""
        output, target, samples = output.float(), target.float(), len(target)
        loss = self(output, target).double() * samples
        return self._measures.totals(loss, output, target, torch.full_like(loss, samples))

    def figures(self, totals: Tensor) -> dict[str, float]:
        """Loss and metrics, if there was a sample."""
        return self._measures.figures(totals)

    def check(self, network: str, output: object, target_shape: tuple[int, ...] | None, classes: int | None) -> None:
        """Refuse an output of another shape than the target's. Raises SettingError."""
        if isinstance(output, tuple):
            raise SettingError(f"network {network!r} gives a tuple of {len(output)}; mse takes a tensor")
        shape = tuple(main_output(output, network, "mse").shape)
        if target_shape is not None and shape[1:] != target_shape:
            raise SettingError(
                f"network {network!r} gives shape {described(shape[1:])}; "
                f"mse takes the shape of the data's targets, {described(target_shape)}"
            )
