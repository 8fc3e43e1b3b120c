"""The update rule of a slice's values, on servers and on workers that keep all parameters themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from volary.server.protocol.vectors import Combine

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SliceUpdate:
    """An update to be applied to a slice, in sums of `count` contributions.

    sums: of each part, (n,) in the order in memory, or in the part's shape; None: nobody used the part, it stays. They
    may be changed if the rule says that it does. scale: factor of the sums. samples: that the run has learnt from,
    these included. rates: learning rates that workers say; none: the rule's own. clip: factor of the gradients, after
    the rule has clipped their values. done: steps of the run, these included, where workers count them. commands: of a
    rule that does with vectors what it is told.
    """

    sums: Sequence[Tensor | None]
    count: int = 1
    scale: float = 1.0
    samples: int = 0
    rates: tuple[float, ...] = ()
    clip: float = 1.0
    done: int = 0
    commands: tuple[Combine, ...] = ()


class UpdateRule(Protocol):
    """How the values of slices change. Different slices may be updated by different threads at once.

    changes_sums: an update's sums are written to.
    """

    changes_sums: bool

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Change `values`, of each part of slice `number`: (n,) in the order in memory, wherever they lie now."""
        ...

    def state(self, number: int) -> Any:
        """A copy of all that decides how the slice continues, besides its values."""
        ...

    def restore(self, number: int, state: Any) -> None:
        """Go on from such a state."""
        ...


@dataclass(frozen=True)
class MeanRule:
    """The mean (local SGD): what workers have changed, by their parts of the samples, is added to what all had.

    scaled: else it is added as it is, whatever workers have learnt from, as what they pull a centre by (EASGD). See
    `volary.server.update_rule.UpdateRule`.
    """

    scaled: bool = True
    changes_sums = False

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """Become the mean of workers' parameters, or move to where they pull."""
        for part, changed in zip(values, update.sums, strict=True):
            if changed is not None:
                part.add_(changed, alpha=update.scale if self.scaled else 1.0)

    def state(self, number: int) -> list[Any]:
        return []

    def restore(self, number: int, state: Any) -> None:
        pass
