"""A layer of the user's own: a class by reference, which a list names where it would name a kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from volary.errors import SettingError
from volary.errors.raised import raised
from volary.network.arguments import accept
from volary.network.layers._base import LayerKind, Shape, with_numbers
from volary.session.values.reference import UserObject

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class CustomLayer(LayerKind):
    """Makes the module by calling the class with its arguments, and with `input_shape` if its signature names that.

    input_shape: of the edge that it reads, without the batch; a tuple of shapes if it reads several.
    """

    most: ClassVar[int | None] = None

    reference: str  # package.module:name or path/file.py:name
    arguments: Any = field(default_factory=dict)  # of the class

    @property
    def user_object(self) -> UserObject:
        """The class that the reference names."""
        return UserObject(self.reference)

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """Found by running a copy on nothing: it has to work on torch's device `meta`, or to give what it was given."""
        import torch

        with torch.device("meta"), torch.no_grad():
            module = self.build(given)
            module.eval()
            try:
                found = module(*(torch.zeros(1, *shape) for shape in given))
            except Exception as error:  # the user's code may raise anything
                raise SettingError(f"{self.user_object.name!r} {raised(error).predicate}") from error
        if not isinstance(found, torch.Tensor) or found.shape[:1] != (1,):
            raise SettingError(f"{self.user_object.name!r} gives no tensor (batch, ...)")
        return (tuple(found.shape[1:]),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        kind, name = self.user_object.load(), self.user_object.name
        offered = {"input_shape": given[0] if len(given) == 1 else given}
        arguments = accept(kind, f"layer {name!r}", self.arguments, offered)
        try:
            made = kind(**arguments)
        except SettingError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise SettingError(f"{name!r} {raised(error).predicate}") from error
        if not isinstance(made, nn.Module):
            raise SettingError(f"{name!r} gives an object of type {type(made).__name__}; accepted: a torch.nn.Module")
        return made

    def with_values(self, values: Mapping[str, int]) -> LayerKind:
        """The layer with values for words among its arguments, such as `classes`. Raises SettingError for a 0."""
        words = {key: word for key, word in self.arguments.items() if isinstance(word, str) and word in values}
        return replace(self, arguments={**self.arguments, **with_numbers(words, values)}) if words else self
