"""Values come into a branch and leave it; the gradients of what came go back, to all workers alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from volary.comm.groups.blocking import gather_plain

if TYPE_CHECKING:
    from volary.comm.groups.layer_group import LayerGroup

_DIMENSIONS = 8  # of what stands where a worker has no values: a layer's wiring may flatten some


class BranchPassing:
    """Passes values of branches that `workers`, of the ranks of `group`, have. All ranks call it in the same order.

    nothing: what stands where a worker has no values, (0, ...). Each worker that does not have the branches gets values
    from one that does; these take turns.
    """

    def __init__(self, group: LayerGroup, workers: Sequence[int], device: torch.device) -> None:
        self.group, self.workers, self._device = group, workers, device
        self.nothing = torch.empty([0] * _DIMENSIONS, device=device)
        self.here = group.rank in workers
        self._tokens: list[Tensor] = []  # of what has come in, through which its gradients are asked for
        missing = [rank for rank in range(group.size) if rank not in workers]
        self._source = {rank: workers[place % len(workers)] for place, rank in enumerate(missing)}

    def begin(self) -> None:
        """A forward begins, or is over: nothing has come in."""
        self._tokens.clear()

    def enter(self, values: Tensor) -> Tensor:
        """The values, of any shape, that all ranks have, for a branch; an empty tensor where it is not."""
        if not (torch.is_grad_enabled() and values.requires_grad):
            return values if self.here else self.nothing
        found, token = _Entering.apply(values, self)  # type: ignore[no-untyped-call]
        self._tokens.append(token)
        return found  # type: ignore[no-any-return]

    def leave(self, values: Sequence[Tensor] | None) -> list[Tensor]:
        """The output of a branch, of any shapes, on all ranks. values: None where it is not."""
        mine = None if values is None else [_described(one) for one in values]
        described = gather_plain(mine, self.group.group)[self.workers[0]]
        found = []
        for place, (kind, shape, trained) in enumerate(described):
            like = torch.empty(shape, dtype=getattr(torch, kind), device="meta")
            own = None if values is None else values[place]
            anchor = torch.empty(0, device=self._device, requires_grad=bool(trained))
            given = (self, like, bool(trained), anchor, own, *self._tokens)
            found.append(_Leaving.apply(*given) if torch.is_grad_enabled() else self.shared(own, like))  # type: ignore[no-untyped-call]
        return found

    def shared(self, values: Tensor | None, like: Tensor) -> Tensor:
        """The values that the workers with the branches have, on all ranks. like: of their shape and type."""
        rank, nothing = self.group.rank, torch.empty(0, dtype=like.dtype, device=self._device)
        own = nothing if values is None else values.detach()
        given = [own if self._source.get(other) == rank else nothing for other in range(self.group.size)]
        blank = nothing if self.here else torch.empty(like.shape, dtype=like.dtype, device=self._device)
        into = [blank if self._source.get(rank) == other else nothing for other in range(self.group.size)]
        arrived = self.group.exchanged(given, into)
        return own.clone() if self.here else arrived[self._source[rank]]


class _Entering(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, passing: BranchPassing) -> tuple[Tensor, Tensor]:
        ctx.passing, ctx.like = passing, torch.empty_like(values, device="meta")
        # cloned: a layer of the branch may change it
        return values.clone() if passing.here else passing.nothing.clone(), values.new_empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        gradient, _ = gradients
        return ctx.passing.shared(gradient if ctx.passing.here else None, ctx.like), None


class _Leaving(Function):
    @staticmethod
    def forward(
        ctx: Any,
        passing: BranchPassing,
        like: Tensor,
        trained: bool,
        _: Tensor,
        own: Tensor | None,
        *tokens: Tensor,
    ) -> Tensor:
        ctx.here, ctx.tokens = passing.here, [token.dtype for token in tokens]
        found = passing.shared(own, like)
        if not trained:
            ctx.mark_non_differentiable(found)
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = gradients
        # also where a gradient stops within the branch, all ranks come to where its values came in
        tokens = [torch.zeros(0, dtype=kind) for kind in ctx.tokens]
        return None, None, None, None, gradient if ctx.here else None, *tokens


def _described(values: Tensor) -> list[Any]:
    return [str(values.dtype).removeprefix("torch."), list(values.shape), values.requires_grad]
