"""Mean squared error of outputs that have the shape of their targets."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from volary.errors import SettingError
from volary.network.criteria.fit import described, main_output


class SquaredError:
    """The square of the difference, a mean over all values of all samples."""

    measured = ("loss",)
    metric = "loss"
    higher_is_better = False

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean; SettingError where torch would broadcast one shape to the other."""
        if output.shape != target.shape:
            raise SettingError(
                f"mse takes outputs of the targets' shape; got {tuple(output.shape)}, {tuple(target.shape)}"
            )
        return mse_loss(output, target.to(output.dtype))

    def counted(self, target: Tensor) -> None:
        """Each value counts alike."""

    def totals(self, output: Tensor, target: Tensor) -> Tensor:
        """One row: the samples' errors, and how many samples."""
        samples = len(target)
        loss = self(output.float(), target.float()).double() * samples
        return torch.stack([loss, torch.full_like(loss, samples)]).unsqueeze(0)

    def figures(self, totals: Tensor) -> dict[str, float]:
        """The loss, if there was a sample."""
        total, count = totals[0].tolist()
        return {"loss": total / count} if count else {}

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
