"""Functions that pass values between the parts of a layer, each with its gradient, over the group of their ranks.

`copied` and `added_up` are each other's gradients, and so are `gathered` and `own_part` (Shoeybi et al. 2019,
arXiv:1909.08053, section 3): between them each rank computes with its part, outside of them all compute the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch.autograd import Function

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.layer_group import LayerGroup


def copied(values: Tensor, group: LayerGroup) -> Tensor:
    """The same values, of any shape, for this rank's part of a layer; the gradient is the sum over all parts."""
    return _Copied.apply(values, group)  # type: ignore[no-any-return, no-untyped-call]


def added_up(values: Tensor, group: LayerGroup) -> Tensor:
    """The sum of what all parts of a layer give, of any shape; each part gets the gradient as it is."""
    return _AddedUp.apply(values, group)  # type: ignore[no-any-return, no-untyped-call]


def gathered(values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Tensor:
    """Gather what all parts of a layer give, (..., own) each, as (..., all). sizes: of the parts."""
    return _Gathered.apply(values, group, sizes)  # type: ignore[no-any-return, no-untyped-call]


def gathered_for_parts(values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Gather what all parts give, (..., own) each, as (..., all), twice: for the next parts, whose gradients are added
    up, and for what all ranks compute alike. sizes: of the parts. Forward and backward pass each value to each rank
    once.
    """
    return _GatheredForParts.apply(values, group, sizes)  # type: ignore[no-any-return, no-untyped-call]


def own_part(values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Tensor:
    """This rank's part, (..., own), of values (..., all), which each rank has. sizes: of the parts."""
    return _OwnPart.apply(values, group, sizes)  # type: ignore[no-any-return, no-untyped-call]


def _narrowed(values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Tensor:
    return values.narrow(-1, sum(sizes[: group.rank]), sizes[group.rank]).contiguous()


class _Copied(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: LayerGroup) -> Tensor:
        ctx.group = group
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.group.added_up(gradient), None


class _AddedUp(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: LayerGroup) -> Tensor:
        return group.added_up(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class _Gathered(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Tensor:
        ctx.group, ctx.sizes = group, sizes
        return group.gathered(values, values.dim() - 1, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _narrowed(gradient, ctx.group, ctx.sizes), None, None


class _GatheredForParts(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Any:
        ctx.group, ctx.sizes = group, sizes
        ctx.set_materialize_grads(False)  # nothing travels for what nobody uses
        found = group.gathered(values, values.dim() - 1, sizes)
        return found, found.view_as(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        of_parts, of_all = gradients
        found = None if of_all is None else _narrowed(of_all, ctx.group, ctx.sizes)
        if of_parts is not None:
            total = ctx.group.own_sum(of_parts, ctx.sizes)
            found = total if found is None else total + found
        return found, None, None


class _OwnPart(Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: LayerGroup, sizes: Sequence[int]) -> Tensor:
        ctx.group, ctx.sizes = group, sizes
        return _narrowed(values, group, sizes)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.group.gathered(gradient.contiguous(), gradient.dim() - 1, ctx.sizes), None, None
