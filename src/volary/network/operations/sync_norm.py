"""Batch normalization (Ioffe & Szegedy 2015, arXiv:1502.03167) by the samples of all workers.

Each worker gives its count, means and sums of squares of each channel, and all combine them in the order of ranks
(Chan, Golub & LeVeque 1983): shares may be uneven or empty, and all have the same statistics bit for bit. Backward adds
up two sums a channel, as one process would over the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from volary.errors import SettingError


def _never() -> bool:
    return False


def _as_it_is() -> float:
    return 1.0


@dataclass(frozen=True)
class NormPeers:
    """The workers that normalise together. gather: every worker's values (k,) by rank, (workers, k); all make the same
    calls.

    rests: what passes now is another worker's, and counts for nothing. weight: the factor of this worker's gradients
    that they get after backward.
    """

    gather: Callable[[Tensor], Tensor]
    rests: Callable[[], bool] = _never
    weight: Callable[[], float] = _as_it_is


def synchronise(module: nn.Module, peers: NormPeers) -> int:
    """Make each batch norm below `module` go by the samples of all workers, in place; returns how many there are.

    Parameters and buffers stay the same objects under the same names.
    """
    found = 0
    for name, child in list(module._modules.items()):  # also those that are there under two names
        if isinstance(child, _BatchNorm):
            setattr(module, name, SynchronisedNorm(child, peers))
            found += 1
        elif child is not None:
            found += synchronise(child, peers)
    return found


def has_batch_norm(module: nn.Module) -> bool:
    """Whether something below `module` is a batch norm."""
    return any(isinstance(one, _BatchNorm) for child in module.children() for one in child.modules())


class SynchronisedNorm(nn.Module):
    """In training a batch norm over the samples of all workers; else it goes by its running statistics."""

    def __init__(self, norm: _BatchNorm, peers: NormPeers) -> None:
        super().__init__()
        self.eps, self.momentum, self._peers = norm.eps, norm.momentum, peers
        self.weight, self.bias = norm.weight, norm.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(norm, name))
        self.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, channels, ...) to the same shape. Raises SettingError for a single value a channel over all."""
        mean, variance = self.get_buffer("running_mean"), self.get_buffer("running_var")
        if not self.training:
            return batch_norm(x, mean, variance, self.weight, self.bias, training=mean is None, eps=self.eps)
        kind = type(x)
        y, *found = _Normalised.apply(x.as_subclass(Tensor), self.weight, self.bias, self.eps, self._peers)  # type: ignore[no-untyped-call]
        if mean is not None:
            self._follow(*found)
        return y if kind is Tensor else y.as_subclass(kind)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Move the running statistics, of the unbiased variance as torch does."""
        if not count:
            return
        batches = self.get_buffer("num_batches_tracked")
        batches += 1
        factor = 1 / batches.item() if self.momentum is None else self.momentum
        for name, value in (("running_mean", mean), ("running_var", variance * (count / (count - 1)))):
            buffer = self.get_buffer(name)
            buffer.lerp_(value.to(buffer.dtype), factor)


class _Normalised(torch.autograd.Function):
    """y, and of all workers mean and variance (channels,) and the count of values a channel, float64."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, peers: NormPeers
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        values, channels = _working(x), x.shape[1]
        over, shape = _places(x)
        own = torch.zeros(1 + 2 * channels, dtype=torch.float64, device=x.device)
        if x.numel() and not peers.rests():
            means = values.mean(over)
            own[0], own[1 : 1 + channels] = x.numel() // channels, means
            own[1 + channels :] = (values - means.view(shape)).square_().sum(over)
        counts, means, squares = peers.gather(own).split((1, channels, channels), 1)
        count = counts.sum()
        if count == 1:
            raise SettingError(
                "a batch norm got a single value a channel over all workers; accepted: batches of 2 samples or more"
            )
        mean = (counts * means).sum(0) / count.clamp(min=1)
        variance = (squares + counts * (means - mean).square()).sum(0) / count.clamp(min=1)
        scale = (variance + eps).rsqrt()
        normal = (values - mean.to(values.dtype).view(shape)) * scale.to(values.dtype).view(shape)
        y = normal if weight is None else normal * weight.to(values.dtype).view(shape)
        y = y if bias is None else y + bias.to(values.dtype).view(shape)
        ctx.save_for_backward(normal, scale, weight)
        ctx.count, ctx.peers, ctx.dtypes = float(count), peers, [None if w is None else w.dtype for w in (weight, bias)]
        ctx.mark_non_differentiable(mean, variance, count)
        return y.to(x.dtype), mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        normal, scale, weight = ctx.saved_tensors
        over, shape = _places(normal)
        incoming = gradient.to(normal.dtype)
        sums = torch.cat([incoming.sum(over), (incoming * normal).sum(over)])
        share = 0.0 if ctx.peers.rests() else ctx.peers.weight()
        everybody = (share * sums.double()) if share else torch.zeros_like(sums, dtype=torch.float64)
        everybody = (ctx.peers.gather(everybody).sum(0) / max(1.0, ctx.count)).to(normal.dtype)
        if share:
            constant, along = (part.view(shape) for part in (everybody / share).chunk(2))
            factor = scale.to(normal.dtype) if weight is None else scale.to(normal.dtype) * weight.to(normal.dtype)
            inwards = (incoming - constant - normal * along) * factor.view(shape)
        else:
            inwards = torch.zeros_like(normal)
        bias_gradient, weight_gradient = sums.chunk(2)
        gradients = [
            None if dtype is None else one.to(dtype)
            for dtype, one in zip(ctx.dtypes, (weight_gradient, bias_gradient), strict=True)
        ]
        return inwards.to(gradient.dtype), *gradients, None, None


def _working(x: Tensor) -> Tensor:
    """The values in the precision that statistics are computed in: float32, or more if they have more."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _places(x: Tensor) -> tuple[list[int], list[int]]:
    """The dimensions that a channel's values lie in, and the shape of something for each channel."""
    return [place for place in range(x.dim()) if place != 1], [1, -1, *[1] * (x.dim() - 2)]
