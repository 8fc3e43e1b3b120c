"""Error feedback: what codecs have not sent yet, by parameter, whatever bucket it lies in and whoever sums it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from volary.exchange.compression.residual import BucketResidual

if TYPE_CHECKING:
    from torch import Tensor

    from volary.exchange.gradients.plan import BucketPlan

RESIDUAL, VELOCITY = "residual", "velocity"

ResidualState = dict[str, dict[str, "Tensor"]]  # by parameter and kind; values in the parameter's order in memory


class ErrorFeedback:
    """Of the buckets of `plans` that are encoded; residuals of other parameters are kept until they are, too."""

    def __init__(self, plans: Sequence[BucketPlan]) -> None:
        self._aside: ResidualState = {}
        self._memory: ResidualState = {}
        encoded = [(plan, plan.representation.frames) for plan in plans if plan.representation.frames is not None]
        self._residuals = {_key(plan): BucketResidual(plan, codec, self._memory) for plan, codec in encoded}
        self._kept = {place: kept for plan, _ in encoded for place, kept in _places(plan, self.of(plan))}

    def of(self, plan: BucketPlan) -> BucketResidual:
        """The residual of the bucket with this plan."""
        return self._residuals[_key(plan)]

    def state(self, *, copied: bool = True) -> ResidualState:
        """All that decides how this goes on. copied: False: in its own memory, until the next step."""
        found: ResidualState = {}
        for (name, kind), kept in self._kept.items():
            if bool(kept.any()):
                found.setdefault(name, {})[kind] = kept
        for more in (self._aside, self._memory):
            for name, kinds in more.items():
                found.setdefault(name, {}).update(kinds)
        return deepcopy(found) if copied else found

    def restore(self, states: Sequence[ResidualState]) -> None:
        """Replace all residuals, between two steps, by those of several ranks. Codecs resume from the first memory."""
        self._aside.clear()
        self._memory.clear()
        for kept in self._kept.values():
            kept.zero_()
        for number, state in enumerate(states):
            for name, kinds in state.items():
                for kind, tensor in kinds.items():
                    if kind in (RESIDUAL, VELOCITY):
                        self._add(name, kind, tensor)
                    elif number == 0:
                        self._memory.setdefault(name, {})[kind] = tensor.clone()
        for residual in self._residuals.values():
            residual.forget()

    def _add(self, name: str, kind: str, tensor: Tensor) -> None:
        kept = self._kept.get((name, kind))
        if kept is None:
            kept = self._aside.setdefault(name, {}).get(kind)
        if kept is None:
            self._aside[name][kind] = tensor.clone()
        else:
            kept += tensor.to(kept.device)


def _key(plan: BucketPlan) -> str:
    return plan.parameters[0][0]


def _places(plan: BucketPlan, residual: BucketResidual) -> Iterator[tuple[tuple[str, str], Tensor]]:
    """Each parameter's part of what is kept, by its name and kind."""
    for kind, kept in ((RESIDUAL, residual.residual), (VELOCITY, residual.velocity)):
        if kept is not None:
            for (name, _), part in zip(plan.parameters, plan.pieces(kept)[1], strict=True):
                yield (name, kind), part
