"""Updaters: how stored values change when something is pushed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from volary.errors import SettingError, VolaryError
from volary.session.values.reference import UserObject
from volary.store.settings import DEFAULTS, keeps_whole, parted

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

    from volary.server.update_rule import SliceUpdate
    from volary.store.protocol import Key

Change: TypeAlias = Callable[["Tensor", "Tensor"], None]  # of what was pushed and what is stored, in place


@dataclass(frozen=True)
class Updater:
    """make: what changes the values of one slice, of this key and shape. floats: only such tensors can be changed.

    changes_pushed: what was pushed may be written to. whole: tensors must not be cut.
    """

    name: str
    make: Callable[[Key, tuple[int, ...]], Change]
    floats: bool = False
    changes_pushed: bool = False
    whole: bool = False

    def check(self, key: Key, dtype: torch.dtype) -> None:
        """Raise SettingError if a tensor of this type cannot be changed."""
        if self.floats and not dtype.is_floating_point:
            raise SettingError(f"key {key!r} is of {dtype}; accepted by updater {self.name!r}: floating-point types")


class SliceRule:
    """A `volary.server.update_rule.UpdateRule` by an updater, without a state: stores keep no cuts."""

    def __init__(self, updater: Updater, key: Key, shape: tuple[int, ...]) -> None:
        self.changes_sums = updater.changes_pushed
        self._name, self._key, self._shape = updater.name, key, shape
        self._change = updater.make(key, shape)

    def change(self, pushed: Tensor, stored: Tensor) -> None:
        """Change `stored` (size,) by `pushed`, of the same size. Raises VolaryError for whatever the updater raises."""
        try:
            with torch.no_grad():
                self._change(pushed.view(self._shape), stored.view(self._shape))
        except Exception as error:  # a user's updater may raise anything
            raise VolaryError(
                f"updater {self._name!r} failed for key {self._key!r}: {type(error).__name__}: {error}"
            ) from error

    def apply(self, number: int, values: Sequence[Tensor], update: SliceUpdate) -> None:
        """The sum of what was pushed, of the slice's one part."""
        (stored,), (pushed,) = values, update.sums
        if pushed is not None:
            self.change(pushed, stored)

    def state(self, number: int) -> None:
        pass

    def restore(self, number: int, state: None) -> None:
        pass


def named(updater: str | Mapping[str, Any]) -> Updater:
    """The updater called so; imports a user's. Raises SettingError."""
    name, arguments = parted(updater)
    if name == DEFAULTS["sync"]:
        return Updater(name, lambda key, shape: _assign)
    if name == DEFAULTS["async"]:
        return Updater(name, lambda key, shape: _add)
    if ":" in name:
        function = UserObject(name).load()
        if not callable(function):
            raise SettingError(f"updater {name!r} is a {type(function).__name__}; accepted: a function")
        return of_function(function, name)
    return _optimizer(name, arguments)


def of_function(function: Callable[..., None], name: str = "") -> Updater:
    """A function of key, pushed and stored."""
    name = name or getattr(function, "__name__", "updater")
    return Updater(name, lambda key, _: partial(function, key), changes_pushed=True)


def _assign(pushed: Tensor, stored: Tensor) -> None:
    stored.copy_(pushed)


def _add(pushed: Tensor, stored: Tensor) -> None:
    stored.add_(pushed)


def _optimizer(name: str, arguments: Mapping[str, Any]) -> Updater:
    kind = getattr(torch.optim, name, None)
    if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer):
        raise SettingError(
            f"updater is {name!r}; accepted: 'assign', 'add', an optimiser of torch.optim such as 'SGD', "
            "'package.module:name' or 'path/file.py:name'"
        )

    def build(tensor: Tensor) -> Optimizer:
        made: Optimizer = kind([tensor], **arguments)
        return made

    try:  # now, not when something is pushed; of two dimensions, which some insist on
        _Optimized(build, (1, 1))(torch.ones(1, 1), torch.ones(1, 1))
    except Exception as error:  # whatever torch says of arguments
        raise SettingError(f"updater {name!r} with {dict(arguments)}: {type(error).__name__}: {error}") from error
    return Updater(name, lambda key, shape: _Optimized(build, shape), floats=True, whole=keeps_whole(name))


class _Optimized:
    """A slice's own optimiser; what is pushed is the gradient."""

    def __init__(self, build: Callable[[Tensor], Optimizer], shape: tuple[int, ...]) -> None:
        self._build, self._shape = build, shape
        self._optimizer: Optimizer | None = None

    def __call__(self, pushed: Tensor, stored: Tensor) -> None:
        if self._optimizer is None:
            # of the type that it is to remember in
            self._tensor = torch.empty(self._shape, dtype=stored.dtype)
            self._optimizer = self._build(self._tensor)
        self._tensor.data, self._tensor.grad = stored, pushed
        self._optimizer.step()
        self._tensor.grad = None
