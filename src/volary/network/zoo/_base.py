"""The protocol of networks: a file of the zoo defines a settings class that builds an nn.Module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from volary.errors import SettingError
from volary.network.starting_weights import StartingWeights, long_form

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Network(ABC):
    """Settings of a published network; a frozen dataclass whose fields `volary check` reads without torch."""

    input_shape: tuple[int, ...] | None = None  # of one sample, such as (3, 32, 32); None: taken from the data
    classes: int | None = None  # outputs; None: taken from the data
    weights: Annotated[StartingWeights | None, long_form] = None  # what its first values are read from; null: drawn

    needs_classes: ClassVar[bool] = True  # False: `build` may be given 0, if nobody says how many there are

    def __post_init__(self) -> None:
        if self.input_shape is not None and not all(isinstance(n, int) and n > 0 for n in self.input_shape):
            raise SettingError(
                f"input_shape is {self.input_shape}; accepted: whole numbers above 0, such as (3, 32, 32)"
            )
        if self.classes is not None and self.classes < 1:
            raise SettingError(f"classes is {self.classes}; accepted: a whole number from 1")
        object.__setattr__(self, "weights", StartingWeights.of(self.weights))
        self.check()

    def check(self) -> None:  # noqa: B027 - most networks have no settings of their own
        """Refuse unfit values of the class's own fields with SettingError."""

    @abstractmethod
    def build(self, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A new module for samples of `input_shape` (without the batch) that gives `classes` values.

        Parameters are drawn from torch's default generator: seed it first. Raises SettingError if the input is unfit.
        """

    def read_own_weights(self, module: nn.Module, input_shape: tuple[int, ...]) -> bool:
        """Read `weights` into what `build` made, if their file is in a form of this network's own; whether it is.

        Raises SettingError if they do not fit.
        """
        return False

    def factors(self) -> Mapping[str, tuple[float, float]]:
        """The factors of the learning rate and the weight decay of parameters, where not 1, by their names."""
        return {}
