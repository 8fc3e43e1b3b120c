"""A network for outputs alone: the same to rounding, with fewer layers; or the network as it is."""

from __future__ import annotations

import torch
from torch import nn

from volary.network.execution.inference import for_inference


def network() -> nn.Sequential:
    torch.manual_seed(1)
    made = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    made(torch.randn(8, 2, 9, 9))  # moves the norms' means
    return made.eval()


def norms(module: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_batch_norms_become_part_of_the_convolutions_before_them_and_outputs_stay():
    module, inputs = network(), torch.randn(3, 2, 9, 9)
    quicker = for_inference(module, inputs)
    assert (norms(module), norms(quicker)) == (2, 0)
    torch.testing.assert_close(quicker(inputs), module(inputs), rtol=1e-4, atol=1e-5)


def test_layers_whose_own_outputs_are_wanted_stay_as_they_are():
    assert norms(for_inference(network(), torch.randn(3, 2, 9, 9), ["3"])) == 1


class ReadsAnother(nn.Module):
    """Uses the first convolution by itself, too."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = network()[:2]

    def forward(self, x):
        return self.parts(x) + self.parts[0](x)


def test_a_network_that_uses_its_layers_in_another_way_keeps_them():
    module, inputs = ReadsAnother().eval(), torch.randn(3, 2, 9, 9)
    quicker = for_inference(module, inputs)
    assert norms(quicker) == 1
    torch.testing.assert_close(quicker(inputs), module(inputs), rtol=1e-4, atol=1e-5)


def test_convolutions_of_images_have_their_channels_last_and_a_network_without_any_stays_as_it_is():
    module, inputs = nn.Sequential(nn.Conv2d(2, 8, 3), nn.MaxPool2d(2)).eval(), torch.randn(3, 2, 9, 9)
    quicker = for_inference(module, inputs)
    assert quicker(inputs).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(quicker(inputs), module(inputs), rtol=1e-4, atol=1e-5)
    plain = nn.Sequential(nn.Linear(4, 2)).eval()
    assert for_inference(plain, torch.randn(3, 4)) is plain
