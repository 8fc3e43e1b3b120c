"""The chain of a network: where it can be cut, what its parts compute, and why a cut is refused."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from volary.errors import SettingError
from volary.naming import named_parameters
from volary.network.zoo import ROOM
from volary.partition.pipelining.chain import Chain, chain_of

ZOO = {
    "lenet": ((1, 28, 28), {}),
    "alexnet": ((3, 67, 67), {}),
    "resnet": ((3, 16, 16), {"depth": 18}),
    "gpt": ((6,), {"layers": 2, "heads": 2, "width": 8, "tied": False}),
    "lstm": ((6,), {"hidden": 8}),
}


def same_as(chain: Chain, inputs: Tensor) -> bool:
    """Whether the links, one after another, give what the network gives, bit for bit."""
    torch.manual_seed(1)
    expected = chain.module(inputs)
    torch.manual_seed(1)
    x = inputs
    for number in range(len(chain.links)):
        x = chain.part(number, number + 1)(x)
    return torch.equal(x, expected)


def built(name: str) -> tuple[nn.Module, Tensor]:
    shape, settings = ZOO[name]
    torch.manual_seed(0)
    inputs = torch.randint(9, (4, *shape)) if len(shape) == 1 else torch.randn(4, *shape)
    return ROOM.load(name)(**settings).build(shape, 9), inputs


@pytest.mark.parametrize("name", ZOO)
def test_links_one_after_another_are_the_network_in_training_and_in_evaluation(name):
    module, inputs = built(name)
    chain = chain_of(module)
    assert len(chain.legal()) == len(chain.links) - 1 >= 4
    assert same_as(chain, inputs)
    module.eval()
    assert same_as(chain, inputs)


@pytest.mark.parametrize("name", ZOO)
def test_every_parameter_is_read_in_one_part_under_its_own_name(name):
    module, _ = built(name)
    chain = chain_of(module)
    bounds = [0, *chain.legal()[1::2], len(chain.links)]
    parts = [dict(named_parameters(chain.part(start, end))) for start, end in pairwise(bounds)]
    found = [(key, id(one)) for part in parts for key, one in part.items()]
    assert sorted(found) == sorted((key, id(one)) for key, one in named_parameters(module))


class Skipping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third, self.last = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.last(self.third(self.second(x).relu()) + x)  # type: ignore[no-any-return]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
        self.third.weight = self.first.weight
        self.fourth = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fourth(self.third(self.second(self.first(x))))  # type: ignore[no-any-return]


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(4)


def test_what_a_skip_connection_spans_is_one_link():
    assert [link.layers for link in chain_of(Skipping()).links] == [["first"], ["second", "third"], ["last"]]


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        (Skipping(), "third", "cut before 'third', as what skip connections join begins with 'second'; accepted: 'sec"),
        (Skipping(), "fc6", "the network has no layer 'fc6'; accepted: 'second', 'last'"),
        (Skipping(), "first", "cut before 'first', as the network begins there"),
        (Tied(), "second", "as 'first.weight' is used on both sides; accepted: 'fourth'"),
    ],
)
def test_a_cut_that_cannot_be_is_refused_with_one_that_can(module, name, said):
    with pytest.raises(SettingError, match=said):
        chain_of(module).place(name)


def test_a_container_names_the_first_layer_in_it():
    chain = chain_of(built("resnet")[0])
    assert chain.links[chain.place("stage2")].name == chain.links[chain.place("stage2.0")].name == "stage2.0.layers.0.0"


@pytest.mark.parametrize("module", [Branching(), Noisy()])
def test_code_that_cannot_be_followed_is_one_link_and_a_network_of_it_refused(module):
    assert len(chain_of(nn.Sequential(nn.Linear(4, 4), module)).links) == 2
    with pytest.raises(SettingError, match=f"the code of {type(module).__name__}.forward cannot be followed layer by"):
        chain_of(module)
    assert not vars(module).keys() - vars(type(module)()).keys(), "it is as before"


def test_a_layer_that_runs_again_begins_links_of_different_names():
    chain = chain_of(built("lstm")[0])
    assert [link.name for link in chain.links] == ["embedding", "dropout", "lstm", "dropout:2", "decoder"]
    assert (chain.place("dropout"), chain.place("dropout:2")) == (1, 3)


class Switching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5, self.training)


def test_a_part_that_does_something_else_in_evaluation_stays_whole():
    module = nn.Sequential(nn.Linear(4, 4), Switching(), nn.Linear(4, 4))
    chain, x = chain_of(module), torch.randn(2, 4)
    module.eval()
    assert torch.equal(chain.part(0, 3)(x), module[2](module[0](x)))
