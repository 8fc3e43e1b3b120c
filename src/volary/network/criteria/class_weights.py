"""How much targets of each class count, as a session says it: by number, by name, or as rare as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from volary.session.values.per_class import PerClass, in_order

Wanted = PerClass | Literal["balanced"]


@runtime_checkable
class WeighsClasses(Protocol):
    """A criterion that may have to know the classes of the data before it counts their targets."""

    def weigh(self, names: Sequence[str], counts: Callable[[], Tensor]) -> None:
        """Learn which classes there are, in their order, and how many samples (classes,) of each there are to learn.

        Raises SettingError for names that the data has not, and what `counts` raises if it is called.
        """
        ...


def weights_of_classes(
    wanted: Wanted, names: Sequence[str] = (), counts: Callable[[], Tensor] = lambda: torch.zeros(0)
) -> Tensor | None:
    """The weights (classes,) in float64; None: all count alike. Raises as `WeighsClasses.weigh`.

    Balanced: all classes with samples count as much in all, and a sample 1 on average; classes without samples have 1.
    """
    if isinstance(wanted, str):
        found = counts().to(torch.float64)
        there = found > 0
        return torch.where(there, found.sum() / (there.sum() * found.clamp(min=1)), torch.ones_like(found))
    return torch.tensor(in_order(wanted, names, "loss.class_weights"), dtype=torch.float64) if wanted else None
