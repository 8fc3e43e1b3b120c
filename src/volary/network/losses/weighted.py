"""Several losses with weights, of one network's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from volary.errors import SettingError
from volary.network.criterion import Criterion
from volary.network.losses._base import Loss
from volary.session.reading.choice import Choice


@dataclass(frozen=True, kw_only=True)
class LossTerm:
    """One of several losses, and how much it counts."""

    loss: Annotated[Any, Choice("volary.network.losses", user=True)]  # a loss
    weight: float = 1.0  # what it is multiplied by
    output: int | None = None  # which of the network's outputs it is of, from 0 (default: all that the network gives)

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise SettingError(f"weight is {self.weight}; accepted: from 0")
        if self.output is not None and self.output < 0:
            raise SettingError(f"output is {self.output}; accepted: a whole number from 0")


@dataclass(frozen=True, kw_only=True)
class WeightedLosses(Loss):
    """The sum of losses, each times its weight. The first one says what decides which checkpoint is the best."""

    parts: tuple[LossTerm, ...] = ()  # the losses, each with a weight and the output that it is of

    def __post_init__(self) -> None:
        if not self.parts:
            raise SettingError("parts is an empty list; accepted: one loss or more, as [{loss: mse, weight: 0.5}]")
        if not self.parts[0].weight:
            raise SettingError("parts: the first weight is 0; accepted: above 0, as all are means over what it counts")

    def build(self) -> Criterion:
        """The criterion; it takes what its parts take."""
        from volary.network.criteria.weighted_sum import WeightedSum
        from volary.network.loss_factory import build_setting

        names = [
            getattr(part.loss, "name", None) or type(part.loss).__module__.rpartition(".")[2] for part in self.parts
        ]
        built = [build_setting(part.loss) for part in self.parts]
        return WeightedSum(names, built, [part.weight for part in self.parts], [part.output for part in self.parts])


LOSS = WeightedLosses
