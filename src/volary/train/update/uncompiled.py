"""torch's optimisers without torch's compiler, until somebody compiles.

Each of them imports `torch._dynamo`, only to call what does nothing in code that is not compiled. That import takes
longer than all the rest of torch (1.6 s of a core, and 70 MiB), in every worker and every server.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

_COMPILER = "torch._dynamo"


@functools.cache
def spare_the_compiler() -> None:
    """Let torch's optimisers leave the compiler alone until somebody else imports it; updates are the same.

    Classes that have been used, and those of a torch that decorates them in another way, stay as they are.
    """
    for kind in filter(_is_optimizer, vars(torch.optim).values()):
        for name, method in list(vars(kind).items()):
            if isinstance(method, FunctionType) and (plain := _undecorated(method)) is not None:
                setattr(kind, name, _either(method, plain))


def _is_optimizer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer)


def _undecorated(method: FunctionType) -> Callable[..., Any] | None:
    """The function of a method in code that is not compiled; None if it has no use for the compiler."""
    inner = getattr(method, "__wrapped__", None)
    if inner is None:
        return None
    if method.__globals__["__name__"] == "torch._compile":  # torch._disable_dynamo
        return inner  # type: ignore[no-any-return]
    if method.__code__.co_name == "_use_grad" and method.__globals__["__name__"] == "torch.optim.optimizer":

        def with_or_without_grad(self: torch.optim.Optimizer, *positional: Any, **named: Any) -> Any:
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return inner(self, *positional, **named)

        return with_or_without_grad
    return None


def _either(decorated: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(decorated)
    def method(*positional: Any, **named: Any) -> Any:
        return (decorated if _COMPILER in sys.modules else plain)(*positional, **named)

    return method
