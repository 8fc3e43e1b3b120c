"""A batch norm whose worker has one sample of a batch: a sentence says who, which layer, and what helps."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from volary.errors import SettingError
from volary.train.loop import enough_samples


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.last = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] != 3:
            raise ValueError("three features")
        return self.last(self.norms(x))


def test_the_layer_and_the_worker_are_named():
    net, sentence = Net(), "BatchNorm1d norms.1 got a single value a channel in training, as rank 2 had one sample"
    with pytest.raises(SettingError) as said, enough_samples(2, "accepted: more"):
        net(torch.zeros(1, 3))
    assert str(said.value) == f"{sentence} of a batch; accepted: more"
    with enough_samples(2, "accepted: more"):
        net(torch.zeros(2, 3))
        net.eval()(torch.zeros(1, 3))


def test_another_error_of_the_network_stays_what_it_is():
    with pytest.raises(ValueError, match="three features"), enough_samples(0, "accepted: more"):
        Net()(torch.zeros(1, 2))
