"""The norm of a whole gradient, from the norms of its pieces, and what clipping by it means."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isnan, nan

from msgspec import Struct

TINY = 1e-6  # as in torch.nn.utils.clip_grad_norm_


class ClipNorm(Struct, frozen=True, array_like=True):
    """A gradient whose norm, of `kind` as in torch, is above `most` is scaled down to it. kind: above 0."""

    most: float
    kind: float = 2.0

    def factor(self, norm: float) -> float:
        """The factor that a gradient of this norm is multiplied by."""
        factor = self.most / (norm + TINY)
        return 1.0 if factor > 1.0 else factor  # one that is no number stays so


def combined(norms: Iterable[float], kind: float) -> float:
    """The norm of all pieces together, in the order in which they are given; 0 of none."""
    pieces = list(norms)
    if any(map(isnan, pieces)):
        return nan
    largest = max(pieces, default=0.0)
    if largest in (0.0, inf) or kind == inf:
        return largest
    return float(largest * sum((each / largest) ** kind for each in pieces) ** (1 / kind))
