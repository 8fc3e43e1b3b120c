"""Long short-term memory (Hochreiter & Schmidhuber 1997), as torch has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from volary.errors import SettingError
from volary.network.checks import share
from volary.network.layers._base import LayerKind, Shape
from volary.network.operations.windows import refuse_below
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LstmLayer(LayerKind):
    """(time, width) to (time, hidden), or to the last position alone. Each sample starts from a zero state, or is
    `stateful`.
    """

    cell: ClassVar[Literal["LSTM", "GRU"]] = "LSTM"  # torch's class of it

    hidden: int  # values of a position's output
    layers: int = 1  # one upon the other
    dropout: float = 0.0  # share of the values between layers that are dropped
    both_ways: bool = False  # whether a second one reads from the end; outputs are twice as many
    output: Literal["all", "last"] = "all"  # which positions it gives
    stateful: bool = False  # each sample goes on from the state of the one before it: truncated back-propagation
    weight_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the matrices
    bias_filler: Annotated[Any, Choice("volary.network.fillers")] = "default"  # first values of the biases

    def check(self) -> None:
        refuse_below("hidden", self.hidden, 1)
        refuse_below("layers", self.layers, 1)
        share("dropout", self.dropout)
        if self.dropout and self.layers == 1:
            raise SettingError("dropout is between layers, and there is one; accepted: 0, or more layers")
        if self.stateful and self.both_ways:
            raise SettingError("stateful is true, and with both_ways one reads from the end; accepted: one of the two")

    def shapes(self, given: tuple[Shape, ...]) -> tuple[Shape, ...]:
        if len(given[0]) != 2:
            raise SettingError("takes sequences (time, width)")
        width = self.hidden * (2 if self.both_ways else 1)
        return ((width,) if self.output == "last" else (given[0][0], width),)

    def build(self, given: tuple[Shape, ...]) -> nn.Module:
        from torch import nn

        from volary.network.operations.sequences import Recurrent

        kind: type[nn.LSTM | nn.GRU] = getattr(nn, self.cell)
        made = kind(
            given[0][1],
            self.hidden,
            self.layers,
            dropout=self.dropout,
            bidirectional=self.both_ways,
            batch_first=True,
        )
        return Recurrent(made, last=self.output == "last", stateful=self.stateful)

    def fill(self, module: nn.Module) -> None:
        for name, values in module.named_parameters():
            (self.bias_filler if "bias" in name else self.weight_filler).fill(values)


LAYER = LstmLayer
