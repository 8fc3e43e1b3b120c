"""Makes an nn.Module that fits the data, from a network's settings or a user's own factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from volary.errors import SettingError
from volary.network.arguments import accept
from volary.network.checks import NO_CLASSES
from volary.network.zoo._base import Network

if TYPE_CHECKING:
    from torch import nn


def build(
    network: Network | Callable[..., object],
    input_shape: tuple[int, ...],
    classes: int | None,
    *,
    arguments: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> nn.Module:
    """Make the module of a zoo entry or of a user's own factory.

    input_shape and classes say what the data has (None: it does not say); a zoo entry's own fields go before them, and
    a factory gets them if its signature names them. arguments, and name for messages: of a factory only.
    Raises SettingError.
    """
    if isinstance(network, Network):
        classes = network.classes or classes
        if not classes and network.needs_classes:
            raise SettingError(f"network.classes is not set, and {NO_CLASSES}")
        return network.build(network.input_shape or input_shape, classes or 0)
    called = name or str(getattr(network, "__name__", repr(network)))
    offered = {"input_shape": input_shape} | ({"classes": classes} if classes else {})
    made = _call(network, called, dict(arguments or {}), offered)
    return _checked(made, called)


def _call(factory: Callable[..., object], name: str, arguments: dict[str, Any], offered: dict[str, Any]) -> object:
    from torch import nn

    if isinstance(factory, nn.Module):
        raise SettingError(
            f"network {name!r} is a module that exists already; name its class or a function that makes it, "
            "so that each worker makes one after seeding"
        )
    if not callable(factory):
        raise SettingError(f"network {name!r} is of type {type(factory).__name__}; accepted: a class or a function")
    absent = {} if "classes" in offered else {"classes": NO_CLASSES}
    return factory(**accept(factory, f"network {name!r}", arguments, offered, absent))


def _checked(module: object, name: str) -> nn.Module:
    from torch import nn
    from torch.nn.parameter import is_lazy

    if inspect.isclass(module) or not isinstance(module, nn.Module):
        what = type(module).__name__
        raise SettingError(f"network {name!r} gives an object of type {what}; accepted: a torch.nn.Module")
    lazy = [key for key, parameter in module.named_parameters() if is_lazy(parameter)]
    if lazy:
        raise SettingError(
            f"network {name!r} has the lazy parameter {lazy[0]!r}; give that layer its sizes, "
            "for example from the arguments input_shape and classes"
        )
    return module
