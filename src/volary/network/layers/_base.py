"""The protocol of kinds of layers: settings, the shapes that a layer makes, the module that computes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from volary.errors import SettingError
from volary.network.checks import NO_CLASSES
from volary.session.reading.settle import settle

if TYPE_CHECKING:
    from torch import Tensor, nn

Shape = tuple[int, ...]  # of one sample: without the batch
Count = int | Literal["classes"]  # the word means the number of classes that the data has


@dataclass(frozen=True, kw_only=True)
class LayerKind(ABC):
    """A layer's settings; a frozen dataclass that is read, and whose shapes are inferred, without torch.

    Axes in settings are counted with the batch as axis 0, as torch counts them, and from the end if negative.
    """

    fewest: ClassVar[int] = 1  # edges that it reads
    most: ClassVar[int | None] = 1  # None: any number

    def __post_init__(self) -> None:
        settle(self)
        self.check()

    def check(self) -> None:  # noqa: B027 - many kinds accept all values of their types
        """Refuse unfit values of the class's own fields with SettingError."""

    @property
    def gives(self) -> int:
        """How many edges it makes."""
        return 1

    @abstractmethod
    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        """The shapes that it makes of those that it is given. Raises SettingError if it does not take them."""

    @abstractmethod
    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        """A new module, called with what `prepared` gives, that gives a tensor (batch, ...), or a tuple of several.

        Its parameters are drawn from torch's default generator. Raises SettingError as `shapes`.
        """

    def prepared(self, *edges: Tensor) -> tuple[Tensor, ...]:
        """The arguments that the module is called with, of the edges (batch, ...) that the layer reads."""
        return edges

    def fill(self, module: nn.Module) -> None:  # noqa: B027 - most kinds have no fillers
        """Fill the parameters of what `build` made, where settings say how."""

    def with_values(self, values: Mapping[str, int]) -> LayerKind:
        """The kind with values for words in its settings, such as `classes`.

        Raises SettingError for a value of 0: nobody says how many there are.
        """
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        words = {name: word for name, word in settings.items() if isinstance(word, str) and word in values}
        return replace(self, **with_numbers(words, values)) if words else self


def with_numbers(words: Mapping[str, str], values: Mapping[str, int]) -> dict[str, int]:
    """The values of words, by setting. Raises SettingError for a value of 0: nobody says how many there are."""
    for name, word in words.items():
        if not values[word]:
            raise SettingError(f"{name} is {word!r}, and {NO_CLASSES}")
    return {name: values[word] for name, word in words.items()}


def axis_of(axis: int, shape: Shape) -> int:
    """Where `shape` has an axis that is counted with the batch as 0. Raises SettingError for the batch, and beyond."""
    place = axis - 1 if axis >= 0 else len(shape) + axis
    if not 0 <= place < len(shape):
        raise SettingError(f"axis is {axis}; accepted: 1 to {len(shape)}, or -{len(shape)} to -1")
    return place


def number(count: Count) -> int:
    """A count as a number. Raises SettingError for the word `classes`, where nobody has said how many there are."""
    if not isinstance(count, int):
        raise SettingError(f"has {count!r} for a number, and nobody says how many there are")
    return count
