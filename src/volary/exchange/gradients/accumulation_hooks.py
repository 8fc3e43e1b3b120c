"""Hooks on parameters that autograd has added a gradient to: that of a bucket, which takes it, is the last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch.utils.hooks import RemovableHandle

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter


def before_bucket(parameter: Tensor, call: Callable[[Tensor], None]) -> RemovableHandle:
    """Call it when the parameter, of any shape, has its gradient, before a bucket that is made later takes that."""
    if not parameter._post_accumulate_grad_hooks:
        parameter._post_accumulate_grad_hooks = _WithLast()
    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(call)
    return handle


def when_accumulated(parameter: Parameter, call: Callable[[Tensor], None]) -> RemovableHandle:
    """Call it when the parameter has its gradient, after all other hooks: they are to see it, and a bucket takes it."""
    hooks = parameter._post_accumulate_grad_hooks
    if not hooks:
        hooks = parameter._post_accumulate_grad_hooks = _WithLast()
    handle = RemovableHandle(hooks)
    if isinstance(hooks, _WithLast):
        hooks.last = handle.id
    hooks[handle.id] = call
    return handle


class _WithLast(OrderedDict[int, Callable[["Tensor"], None]]):
    """A parameter's hooks, of which that with the id `last` stays the last."""

    last = -1

    def __setitem__(self, number: int, hook: Callable[[Tensor], None]) -> None:
        super().__setitem__(number, hook)
        if number != self.last and self.last in self:
            super().__setitem__(self.last, self.pop(self.last))
