"""What a parameter has as its gradient while that travels: nothing can be computed with it, and a sentence says why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from volary.errors import SettingError

if TYPE_CHECKING:
    from torch import Tensor

TWICE = (
    "backward() was called again before optimizer.step(), and with early_update the gradients of the call before are "
    "summed already; accepted: worker.distribute(..., passes=k) for k calls, optimizer.step() after each, or "
    "early_update=False"
)
_LOOKED_AT = (
    "a gradient was used between backward() and optimizer.step(), and with early_update it is still on its way; "
    "accepted: worker.clip_grad_norm_(model, max_norm) to clip by the norm, or early_update=False for anything else "
    "(torch's clip_grad_norm_, a GradScaler)"
)


class AbsentGradient(torch.Tensor):
    """Of the shape, type and device of a parameter, and without values: every use raises SettingError.

    Were the gradient None, torch's clip_grad_norm_ and a GradScaler would do nothing, and say nothing.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, parameter: Tensor) -> AbsentGradient:
        """A gradient of this parameter, of its shape, type and device."""
        made: AbsentGradient = torch.Tensor._make_wrapper_subclass(
            cls, parameter.shape, dtype=parameter.dtype, device=parameter.device, strides=parameter.stride()
        )
        return made

    @classmethod
    def __torch_dispatch__(cls, *_: Any, **__: Any) -> Any:
        """Any operation; autograd's own is that of a second backward."""
        raise SettingError(TWICE if torch._C._current_graph_task_id() != -1 else _LOOKED_AT)
