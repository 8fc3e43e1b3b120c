"""What holds for each partition, by listing the room: a new file is tested the moment it exists."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from torch import nn

from volary.partition import ROOM


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


@pytest.mark.parametrize("name", ROOM.names())
def test_a_part_has_parameters_of_the_network_and_no_others(name):
    whole = network()
    part = ROOM.load(name)().part(whole)
    own = {id(one) for one in whole.parameters()}
    assert list(part.parameters()) and all(id(one) in own for one in part.parameters())


@pytest.mark.parametrize("name", ROOM.names())
def test_its_settings_are_frozen_and_the_same_ones_give_the_same_part(name):
    kind = ROOM.load(name)
    assert dataclasses.is_dataclass(kind) and kind() == kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().unknown = 1
    whole = network()
    first, second = (kind().part(copy.deepcopy(whole)) for _ in range(2))
    assert [one.shape for one in first.parameters()] == [one.shape for one in second.parameters()]
