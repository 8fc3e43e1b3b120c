"""Makes a criterion, from a loss's settings or a user's own loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from volary.errors import SettingError
from volary.network.arguments import accept
from volary.network.criterion import Criterion
from volary.network.losses._base import Loss


def build_loss(
    loss: Loss | Callable[..., object], *, arguments: Mapping[str, Any] | None = None, name: str | None = None
) -> Criterion:
    """The criterion of a file of losses/, or of a user's own function or class.

    A function is called as loss(output, target, **arguments) and returns the mean over the samples as a scalar; a class
    is made with the arguments and then called so. A loss that is a mean over something else has `counted(target)`,
    which gives how much that is. name: how messages call it. Raises SettingError.
    """
    if isinstance(loss, Loss):
        return loss.build()
    from volary.network.criteria.user_loss import UserLoss

    named = name or str(getattr(loss, "__name__", repr(loss)))
    called = f"loss {named!r}"
    if not callable(loss):
        raise SettingError(f"{called} is of type {type(loss).__name__}; accepted: a function or a class")
    arguments = {key: _weights(value) for key, value in (arguments or {}).items()} if _of_torch(loss) else arguments
    if inspect.isclass(loss):
        made = loss(**accept(loss, called, arguments or {}, {}))
        return UserLoss(_callable(made, called), named)
    if arguments:
        loss = partial(loss, **accept(partial(loss, None, None), called, arguments, {}))
    return UserLoss(_callable(loss, called), named)


def build_setting(setting: Any) -> Criterion:
    """The criterion of a session's loss: a file of losses/, or a reference to a user's own. Raises as `build_loss`."""
    if isinstance(setting, Loss):
        return setting.build()
    return build_loss(setting.load(), arguments=setting.arguments, name=setting.name)


def _of_torch(loss: object) -> bool:
    return str(getattr(loss, "__module__", "")).startswith("torch.nn.")


def _weights(value: Any) -> Any:
    """A list of numbers, as a session gives the weights of classes, in the form that torch takes."""
    import torch

    return torch.tensor(value, dtype=torch.get_default_dtype()) if isinstance(value, list | tuple) else value


def _callable(loss: object, called: str) -> Callable[..., Any]:
    """`loss` itself, if it can be called with an output and a target and has nothing to train."""
    parameters = getattr(loss, "parameters", None)
    if not callable(loss):
        raise SettingError(f"{called} makes an object that cannot be called; accepted: loss(output, target)")
    if callable(parameters) and any(True for _ in parameters()):
        raise SettingError(f"{called} has parameters to train; put them into the network")
    try:
        inspect.signature(loss).bind(None, None)
    except TypeError as error:
        raise SettingError(f"{called} cannot be called as loss(output, target): {error}") from None
    except ValueError:  # written in C, without a signature to read
        pass
    return loss
