"""Functions of each value, or of it and its neighbours."""

from __future__ import annotations

from math import log

from torch import Tensor, nn
from torch.nn.functional import avg_pool2d


class Absolute(nn.Module):
    """The magnitude of each value."""

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        return x.abs()


class Power(nn.Module):
    """(shift + scale * x) ** power."""

    def __init__(self, power: float, scale: float, shift: float) -> None:
        super().__init__()
        self.power, self.scale, self.shift = power, scale, shift

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        line = self.shift + self.scale * x
        return line if self.power == 1 else line**self.power


class ExponentialOfLine(nn.Module):
    """base ** (shift + scale * x); base: None: e."""

    def __init__(self, base: float | None, scale: float, shift: float) -> None:
        super().__init__()
        self.base, self.scale, self.shift = base, scale, shift

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        line = self.shift + self.scale * x
        return (line if self.base is None else line * log(self.base)).exp()


class LogarithmOfLine(nn.Module):
    """The logarithm of shift + scale * x; base: None: e."""

    def __init__(self, base: float | None, scale: float, shift: float) -> None:
        super().__init__()
        self.base, self.scale, self.shift = base, scale, shift

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        found = (self.shift + self.scale * x).log()
        return found if self.base is None else found / log(self.base)


class Clamp(nn.Module):
    """Values from `low` to `high`."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        return x.clamp(self.low, self.high)


class Above(nn.Module):
    """1 where a value is above `bound`, 0 elsewhere."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        """(...) to the same shape."""
        return (x > self.bound).to(x.dtype)


class ResponseNormWithin(nn.Module):
    """Local response normalization within channels, as Caffe has it: beyond the edges squares are 0, and counted."""

    def __init__(self, size: int, alpha: float, beta: float, k: float) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) to the same shape."""
        near = avg_pool2d(x.square(), self.size, stride=1, padding=self.size // 2)
        found: Tensor = x / (self.k + self.alpha * near) ** self.beta
        return found
