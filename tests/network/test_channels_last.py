"""Activations of images with the channels of a pixel as neighbours: the same results to rounding, in another layout."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from volary.errors import SettingError
from volary.network.execution.channels_last import channels_last


class Branched(nn.Module):
    """Two convolutions one after the other, one beside them, and a fully connected layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.last = nn.Conv2d(8, 4, 3, padding=1, groups=2)
        self.beside = nn.Conv2d(3, 4, 2, stride=2)
        self.scores = nn.Linear(4 * 4 * 4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.scores((self.last(self.body(images)) + self.beside(images)).flatten(1))


def test_outputs_and_gradients_are_the_same_to_rounding_and_activations_lie_otherwise() -> None:
    plain = Branched()
    module, seen = copy.deepcopy(plain), list[bool]()
    channels_last(module)
    for part in (module.body[0], module.body[3], module.last):
        part.register_forward_hook(
            lambda _, __, found: seen.append(found.is_contiguous(memory_format=torch.channels_last))
        )
    images = torch.randn(6, 3, 8, 8)
    for one in (plain, module):
        one(images).square().sum().backward()
    assert seen == [True] * 3
    torch.testing.assert_close(module(images), plain(images))
    for mine, expected in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad)
        assert mine.is_contiguous()


def test_a_network_without_convolutions_of_images_is_refused() -> None:
    with pytest.raises(
        SettingError, match=r"train\.channels_last is true, and the network has no convolution of images"
    ):
        channels_last(nn.Sequential(nn.Conv1d(1, 2, 3), nn.Linear(4, 2)))
