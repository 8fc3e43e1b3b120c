"""Batch normalization that goes by its running statistics, in training too."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm


class FrozenNorm(nn.Module):
    """Has the parameters and statistics of a batch norm under the same names; the statistics stay as they are."""

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        self.eps = norm.eps
        self.weight, self.bias = norm.weight, norm.bias
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.register_buffer("num_batches_tracked", norm.num_batches_tracked)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, ...) to the same shape."""
        mean, variance = self.get_buffer("running_mean"), self.get_buffer("running_var")
        return batch_norm(x, mean, variance, self.weight, self.bias, eps=self.eps)
