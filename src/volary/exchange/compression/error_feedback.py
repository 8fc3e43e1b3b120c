"""Error feedback: keeps what codecs have not sent yet, by parameter, whatever its bucket and whoever sums it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

from volary.exchange.compression.residual import RESIDUAL, VELOCITY, BucketResidual

if TYPE_CHECKING:
    from torch import Tensor

    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.plan import BucketPlan


class ErrorFeedback:
    """Keeps residuals of the buckets of `plans` that are encoded; a bucket takes its parameters' up when it first is.

    Residuals of other parameters are kept until they are encoded, too. undoes: see `BucketResidual`.
    """

    def __init__(self, plans: Sequence[BucketPlan], *, undoes: bool = False) -> None:
        self._kept: ResidualState = {}
        encoded = [(plan, plan.representation.frames) for plan in plans if plan.representation.frames is not None]
        self._residuals = {
            _key(plan): BucketResidual(plan, codec, self._kept, undoes=undoes) for plan, codec in encoded
        }

    def of(self, plan: BucketPlan) -> BucketResidual:
        """The residual of the bucket with this plan."""
        return self._residuals[_key(plan)]

    def left_out(self, chunk: Chunk, *, all_of_it: bool) -> None:
        """Note that what was agreed of `chunk` is not applied: of the parameters that nobody used, or `all_of_it`."""
        bucket = chunk.bucket
        residual = self._residuals.get(bucket.slots[0].name)
        if residual is None:
            return
        if all_of_it:
            residual.leave_out(bucket.agreed, chunk.start, chunk.end)
            return
        for slot, values in zip(chunk.slots, chunk.gradients, strict=True):
            if not slot.users:
                start = values.storage_offset() - bucket.agreed.storage_offset()
                residual.take_back(bucket.agreed, int(start), int(start) + values.numel())

    def state(self, *, copied: bool = True) -> ResidualState:
        """All residuals. copied: False: in its own memory, until the next step."""
        found = {name: dict(kinds) for name, kinds in self._kept.items() if kinds}
        for residual in self._residuals.values():
            for name, kind, values in residual.in_use():
                if bool(values.any()):
                    found.setdefault(name, {})[kind] = values
        return deepcopy(found) if copied else found

    def restore(self, states: Sequence[ResidualState]) -> None:
        """Replace all residuals, between two steps, by those of several ranks. Codecs resume from the first memory.

        The tensors are this one's from now on.
        """
        self._kept.clear()
        for residual in self._residuals.values():
            residual.forget()
        for number, state in enumerate(states):
            for name, kinds in state.items():
                for kind, tensor in kinds.items():
                    if number == 0 or kind in (RESIDUAL, VELOCITY):
                        self._add(name, kind, tensor)

    def _add(self, name: str, kind: str, tensor: Tensor) -> None:
        own = self._kept.setdefault(name, {})
        if kind in own:
            own[kind] += tensor.to(own[kind].device)
        else:
            own[kind] = tensor


def _key(plan: BucketPlan) -> str:
    return plan.parameters[0][0]
