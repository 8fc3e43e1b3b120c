"""Samples that are read from storage and decoded: what is wanted next can be told ahead. Others have neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from volary.data.samples import Samples

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class Stored(Samples, Protocol):
    """Samples that take time to read, with something random in them perhaps."""

    @property
    def block(self) -> int:
        """How many neighbours storage reads together; the order of an epoch keeps them near one another."""
        ...

    @property
    def scale(self) -> Callable[[Tensor], Tensor] | None:
        """The function that makes inputs of what `take` gives, on any device; None: they are inputs already."""
        ...

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Fetch, but inputs (n, ...) as they were decoded: bytes of images, a quarter of the size of their values."""
        ...

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Fetch as from all samples; the epoch and a sample's index decide what is random in it."""
        ...

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        """Begin to read `indices` (n,), which will be fetched after all that were told before.

        False: there is no room, and it was told in vain.
        """
        ...


def fetch(samples: Samples, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of any samples, as `Samples.fetch` gives them, in this epoch."""
    return samples.fetch(indices, epoch) if isinstance(samples, Stored) else samples.fetch(indices)
