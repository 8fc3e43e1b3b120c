"""Takes the place of a gradient while that is elsewhere: a use gets what all workers agree on, or an error."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map_only

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

TWICE = (
    "backward() was called again before optimizer.step(), and with early_update the gradients of the call before are "
    "summed already; accepted: worker.distribute(..., passes=k) for k calls, optimizer.step() after each, or "
    "early_update=False"
)
LOOKED_AT = (
    "a gradient was used between backward() and optimizer.step(), and with early_update it is still on its way; "
    "accepted: worker.clip_grad_norm_(model, max_norm) to clip by the norm, or early_update=False for anything else "
    "(torch's clip_grad_norm_, a GradScaler)"
)


class AbsentGradient(torch.Tensor):
    """A tensor of the shape, type and device of a parameter, without values. look: called before it is used.

    If the gradient were None, torch's clip_grad_norm_ and a GradScaler would do nothing, and say nothing. `look` gives
    the parameter its gradient, or raises SettingError. added: what autograd has added to it since, in a backward.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    added: Tensor | None
    look: Callable[[], None]
    parameter: weakref.ref[Tensor]

    @staticmethod
    def __new__(cls, parameter: Tensor, look: Callable[[], None]) -> AbsentGradient:
        """A gradient of this parameter, of its shape, type and device."""
        made: AbsentGradient = torch.Tensor._make_wrapper_subclass(
            cls, parameter.shape, dtype=parameter.dtype, device=parameter.device, strides=parameter.stride()
        )
        made.added, made.look, made.parameter = None, look, weakref.ref(parameter)
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _: Any, given: Any = (), named: Any = None) -> Any:
        """Any operation: that of autograd, which accumulates, or a use."""
        own = given[0] if given else None
        if _in_backward() and isinstance(own, cls) and own.added is None:
            if operation is torch.ops.aten.add_.Tensor:
                own.added = given[1]
                return own
            if operation is torch.ops.aten.add.Tensor:  # with create_graph
                more = cls(own, own.look)
                more.added = given[1]
                return more
        given, named = tree_map_only(cls, cls.values, (given, named or {}))
        return operation(*given, **named)

    def values(self) -> Tensor:
        """The gradient as it is now. Raises SettingError."""
        if self.added is not None:  # a hook of the user's, within backward; others may have the same tensor
            self.added = self.added.clone()
            return self.added
        if _in_backward():
            raise SettingError("a gradient was used within backward(), which is not there yet; accepted: after it")
        self.look()
        parameter = self.parameter()
        found = None if parameter is None else parameter.grad
        return torch.zeros(self.shape, dtype=self.dtype, device=self.device) if found is None else found


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
