"""Recurrent layers of torch (`nn.LSTM`, `nn.GRU`) whose hidden units are with different ranks.

A rank has the rows of each gate's matrices that belong to its units. It reads the inputs of all positions, computes its
units of a position, and all ranks gather them before the next one: so there is one message for each position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.errors import SettingError
from volary.partition.cutting.passing import copied, gathered, gathered_for_parts, own_part
from volary.partition.cutting.read_by_hand import HeldInPart

if TYPE_CHECKING:
    from volary.comm.groups.layer_group import LayerGroup

GATES: dict[type[nn.Module], int] = {nn.LSTM: 4, nn.GRU: 3}  # matrices, one below the other, in each weight
State = list[Tensor]  # of this rank's units: hidden values, and with LSTM cells


def has_own_units(layer: nn.Module) -> bool:
    """Whether it is a recurrent layer whose outputs are its units as they are."""
    return type(layer) in GATES and not layer.proj_size


class UnitsLSTM(HeldInPart, nn.LSTM):
    """Computes its units: it has their rows of each gate. sizes: units of each rank."""

    group: LayerGroup
    sizes: Sequence[int]

    def forward(  # type: ignore[override]
        self, inputs: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """As torch's; `inputs` is a tensor."""
        outputs, (hidden, cells) = _passed(self, inputs, hx, _lstm)
        return outputs, (hidden, cells)


class UnitsGRU(HeldInPart, nn.GRU):
    """Computes its units: it has their rows of each gate. sizes: units of each rank."""

    group: LayerGroup
    sizes: Sequence[int]

    def forward(self, inputs: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """As torch's; `inputs` is a tensor."""
        outputs, (hidden,) = _passed(self, inputs, None if hx is None else (hx,), _gru)
        return outputs, hidden


UNITS: dict[type[nn.Module], type[nn.Module]] = {nn.LSTM: UnitsLSTM, nn.GRU: UnitsGRU}
Cell = Callable[[Tensor, Tensor, State], State]  # what input and hidden values give to the gates, and the state


def _lstm(of_input: Tensor, of_hidden: Tensor, state: State) -> State:
    """Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000; gates in torch's order."""
    enter, forget, new, leave = (of_input + of_hidden).chunk(4, -1)
    cells = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return [leave.sigmoid() * cells.tanh(), cells]


def _gru(of_input: Tensor, of_hidden: Tensor, state: State) -> State:
    """Cho et al. 2014, in torch's variant: what is reset are the hidden values' products."""
    (reset, update, new), (reset_too, update_too, new_too) = of_input.chunk(3, -1), of_hidden.chunk(3, -1)
    kept = (update + update_too).sigmoid()
    return [(1 - kept) * (new + (reset + reset_too).sigmoid() * new_too).tanh() + kept * state[0]]


def _passed(
    layer: UnitsLSTM | UnitsGRU, inputs: Tensor, begins: Sequence[Tensor] | None, cell: Cell
) -> tuple[Tensor, list[Tensor]]:
    """The outputs of all units for `inputs`, in the layer's order, and what they end with, (layers, samples, units)."""
    if not isinstance(inputs, Tensor):
        raise SettingError(
            f"partition=tensor cuts a layer that is given a {type(inputs).__name__}; accepted: a tensor, as (samples, "
            "time, width), or to leave the layer out of strategy.partition.plan"
        )
    alone, ways = inputs.dim() == 2, 1 + layer.bidirectional
    x = inputs.unsqueeze(1) if alone else inputs.transpose(0, 1) if layer.batch_first else inputs
    if begins is None:
        nothing = x.new_zeros(layer.num_layers * ways, x.shape[1], sum(layer.sizes))
        begins = [nothing] * (2 if isinstance(layer, nn.LSTM) else 1)
    elif alone:
        begins = [one.unsqueeze(1) for one in begins]
    given, ends = copied(x, layer.group), list[State]()
    for number in range(layer.num_layers):
        read = [
            _read(layer, given, place, [one[place] for one in begins], cell)
            for place in range(number * ways, (number + 1) * ways)
        ]
        ends += [end for _, _, end in read]
        given = torch.cat([for_parts for for_parts, _, _ in read], -1)
        if number < layer.num_layers - 1:
            given = functional.dropout(given, layer.dropout, layer.training)
    found = torch.cat([for_all for _, for_all, _ in read], -1)
    hidden, *cells = (torch.stack(one) for one in zip(*ends, strict=True))
    ended = [hidden, *(gathered(one, layer.group, layer.sizes) for one in cells)]
    if alone:
        return found.squeeze(1), [one.squeeze(1) for one in ended]
    return found.transpose(0, 1) if layer.batch_first else found, ended


def _read(
    layer: UnitsLSTM | UnitsGRU, x: Tensor, place: int, begins: Sequence[Tensor], cell: Cell
) -> tuple[Tensor, Tensor, State]:
    """One layer over x (time, samples, width), in one direction, from states (samples, units) on.

    Returns all units' outputs (time, samples, units), for parts of layers and for what all ranks compute alike; and
    what it ends with: hidden values of all units, and cells of this rank's.
    """
    of_input, of_hidden, *biases = layer.all_weights[place]
    of_inputs = functional.linear(x, of_input, biases[0] if biases else None)
    hidden = copied(begins[0], layer.group)
    state = [own_part(one, layer.group, layer.sizes) for one in begins]
    backwards = layer.bidirectional and place % 2
    steps = list[tuple[Tensor, Tensor]]()
    for position in reversed(of_inputs.unbind()) if backwards else of_inputs.unbind():
        state = cell(position, functional.linear(hidden, of_hidden, biases[1] if biases else None), state)
        steps.append(gathered_for_parts(state[0], layer.group, layer.sizes))
        hidden, shown = steps[-1]
    for_parts, for_all = (torch.stack(one[::-1] if backwards else one) for one in zip(*steps, strict=True))
    return for_parts, for_all, [shown, *state[1:]]
