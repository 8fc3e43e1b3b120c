"""LSTM and GRU whose units are with different workers give what torch's give on one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from _workers import joined
from volary.errors import SettingError
from volary.network.layer_graph import layer_graph
from volary.partition import ROOM
from volary.train.holding import layer_uses

SAMPLES, TIME, WIDTH, UNITS = 3, 3, 4, 7


def layers() -> dict[str, nn.RNNBase]:
    """By name: 7 units, which neither 2 nor 3 workers divide."""
    found: dict[str, nn.RNNBase] = {
        "LSTM": nn.LSTM(WIDTH, UNITS, batch_first=True),
        "LSTM, both ways": nn.LSTM(WIDTH, UNITS, 2, bidirectional=True, dropout=0.4),
        "LSTM without bias": nn.LSTM(WIDTH, UNITS, 3, bias=False),
        "GRU": nn.GRU(WIDTH, UNITS, 2, batch_first=True, dropout=0.4),
        "GRU, both ways": nn.GRU(WIDTH, UNITS, bidirectional=True),
    }
    return {name: layer.double() for name, layer in found.items()}


def passed(layer: nn.Module, x: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Outputs, what the layer ends with, and the gradients of what it was given, with dropout drawn alike."""
    leaves = [one.clone().requires_grad_() for one in (x, *states)]
    torch.manual_seed(3)
    given = leaves[1:] if isinstance(layer, nn.LSTM) else leaves[1:2]
    outputs, ends = layer(leaves[0], (tuple(given) if len(given) > 1 else given[0]) if given else None)
    ends = list(ends) if isinstance(ends, tuple) else [ends]
    (outputs.square().sum() + sum((one.sin().sum() for one in ends), outputs.sum())).backward()
    return [outputs.detach(), *(one.detach() for one in ends), *(one.grad for one in (leaves[0], *given))]


def cut(rank: int, world_size: int) -> None:
    torch.manual_seed(1)
    for attempt, (name, whole) in enumerate(layers().items()):
        mine = copy.deepcopy(whole)
        part = ROOM.load("tensor")().part(nn.Sequential(mine), rank, world_size)
        assert part.join is not None
        part.join(joined(attempt))
        states = [torch.randn(whole.num_layers * (1 + whole.bidirectional), SAMPLES, UNITS).double() for _ in "hc"]
        x = torch.randn(*((SAMPLES, TIME) if whole.batch_first else (TIME, SAMPLES)), WIDTH).double()
        of_one = (x[:, 0], [one[:, 0] for one in states])
        ways = [(x, states)] if whole.bidirectional else [(x, []), (x[0], []) if whole.batch_first else of_one]
        for given, begins in ways:
            for layer in (whole, mine):
                layer.zero_grad()
            expected, found = passed(whole, given, begins), passed(mine, given, begins)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")
            for parameter, values in mine.named_parameters():
                own = part.holdings.blocks[f"0.{parameter}"]
                wanted = own.taken_from(whole.get_parameter(parameter).grad)
                torch.testing.assert_close(values.grad, wanted, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_units_of_several_workers_give_outputs_states_and_gradients_of_torch_s_layers(workers, world_size):
    workers(world_size, cut)


class Both(nn.Sequential):
    """Two recurrent layers, of which the second's inputs are trained."""

    def __init__(self) -> None:
        super().__init__(nn.LSTM(WIDTH, 8, 2, batch_first=True), nn.GRU(8, 6, bidirectional=True, batch_first=True))

    def forward(self, x: Tensor) -> Tensor:
        return self[1](self[0](x)[0])[0]


def passing(rank: int, world_size: int) -> None:
    x, network = torch.ones(SAMPLES, TIME, WIDTH), Both()
    uses = layer_uses(layer_graph(network, x, nullcontext()))
    part = ROOM.load("tensor")().part(network, rank, world_size)
    assert part.join is not None
    group = part.join(joined())
    rounds = list[int]()

    @contextmanager
    def waiting() -> Iterator[None]:
        rounds.append(1)
        yield

    group.waiting = waiting
    network(x).sum().backward()
    assert len(rounds) == part.rounds(uses)
    assert group.sent_bytes == part.passes_bytes(uses, SAMPLES)
    with pytest.raises(SettingError, match="cuts a layer that is given a PackedSequence; accepted: a tensor, as"):
        network[0](nn.utils.rnn.pack_sequence([torch.ones(4, WIDTH), torch.ones(2, WIDTH)]))


def test_what_units_pass_to_others_is_predicted_and_packed_sequences_are_refused(workers):
    workers(2, passing)


@pytest.mark.parametrize(
    ("plan", "ranks", "said"),
    [
        ({"0": "row"}, 2, "plan cuts 0 by row, and it is a LSTM; accepted: units"),
        ({"0": "units"}, 8, "plan cuts 0 by units, of which it has 7, over 8 workers; accepted: to leave it out, or"),
        ({"1": "units"}, 2, "plan names 1, a LSTM, which cannot be cut; accepted: .*LSTM and GRU"),
    ],
)
def test_what_a_recurrent_layer_cannot_be_cut_by_is_refused(plan, ranks, said):
    network = nn.Sequential(nn.LSTM(WIDTH, UNITS), nn.LSTM(WIDTH, UNITS, proj_size=3))
    with pytest.raises(SettingError, match=said):
        ROOM.load("tensor")(plan=plan).part(network, 0, ranks)
