"""Layers whose activations are computed anew: the same results bit for bit, with less that is kept for backward."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from volary.errors import SettingError
from volary.network.execution.recompute import recompute


def network() -> nn.Module:
    """With random numbers, with statistics, and with a buffer that decides what comes out."""
    torch.manual_seed(1)
    normed = parametrizations.spectral_norm(nn.Linear(8, 8))
    body = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), normed)
    return nn.Sequential(body, nn.Flatten(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 3))


def three_steps(module: nn.Module) -> list[Tensor]:
    torch.manual_seed(2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    inputs = torch.randn(6, 1, 8)
    for _ in range(3):
        optimizer.zero_grad()
        module(inputs).square().sum().backward()
        optimizer.step()
    module.eval()
    return [*(one.detach() for one in module.state_dict().values()), torch.rand(1), module(inputs).detach()]


@pytest.mark.parametrize("patterns", [("0",), ("0.*", "2"), ("*",)], ids=str)
def test_training_is_the_same_bit_for_bit(patterns: tuple[str, ...]) -> None:
    module = network()
    recompute(module, patterns)
    for mine, expected in zip(three_steps(module), three_steps(network()), strict=True):
        assert torch.equal(mine, expected)


def test_only_inputs_are_kept_for_backward() -> None:
    def kept(module: nn.Module) -> int:
        found: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            if not isinstance(tensor, nn.Parameter):
                found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        held: list[Any] = []
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            held.append(module(torch.randn(32, 64)))
        return sum(found.values())

    layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())]
    module = nn.Sequential(nn.Sequential(*layers))
    plain = kept(module)
    recompute(module, ("0",))
    assert kept(module) < plain / 4


def test_a_copy_computes_with_its_own_parameters() -> None:
    module = network()
    recompute(module, ("0",))
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    other(torch.randn(6, 1, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in other.parameters())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_pattern_of_no_layer_is_refused_with_the_nearest_name() -> None:
    module = nn.Sequential()
    module.add_module("conv1", nn.Conv2d(1, 1, 3))
    with pytest.raises(
        SettingError, match=r"recompute: 'conf1' fits no layer; did you mean 'conv1'\? Known: conv1, and"
    ):
        recompute(module, ("conf1",))
    with warnings.catch_warnings(action="ignore"):  # torch would have us use something else
        module.add_module("script", torch.jit.script(nn.Linear(2, 2)))
    with pytest.raises(SettingError, match=r"train\.recompute: script is TorchScript"):
        recompute(module, ("scr*",))
