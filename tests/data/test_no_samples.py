"""Batches without samples: loops go on with them, and nothing of them is counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from volary.data.batching.no_samples import NoSamples, without_rows

IMAGE, SERIES = (3, 8, 8), (5, 4)


class Flattened(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = inputs.view(inputs.size(0), -1)
        return found


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "connected": (lambda: nn.Linear(4, 2), SERIES),
    "convolution": (lambda: nn.Conv2d(3, 4, 3), IMAGE),
    "pooled": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)), IMAGE),
    "normalised": (lambda: nn.BatchNorm2d(3), IMAGE),
    "normalised each": (lambda: nn.InstanceNorm2d(3, affine=True), IMAGE),
    "in groups": (lambda: nn.GroupNorm(1, 3), IMAGE),
    "shuffled": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.PixelShuffle(2)), IMAGE),
    "enlarged": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Upsample(scale_factor=2)), IMAGE),
    "recurrent": (lambda: nn.LSTM(4, 2, batch_first=True), SERIES),
    "attending": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), SERIES),
    "flattened": (lambda: nn.Sequential(Flattened(), nn.Dropout(0.5), nn.Linear(20, 3)), SERIES),
}


def nothing(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    found, cut = without_rows(torch.ones(2, *shape, dtype=dtype), 2)
    assert cut
    return found


@pytest.mark.parametrize(("made", "shape"), LAYERS.values(), ids=LAYERS)
def test_layers_compute_nothing_and_all_parameters_have_a_gradient_of_zero(made, shape):
    layer = made()
    outputs = layer(nothing(*shape))
    outputs = outputs[0] if isinstance(outputs, tuple) else outputs
    loss = functional.mse_loss(outputs, torch.zeros_like(outputs))
    assert (outputs.shape[0], type(outputs), loss.item()) == (0, NoSamples, 0.0)
    loss.backward()
    assert all(one.grad is not None and not one.grad.any() for one in layer.parameters())


LOSSES: list[Callable[[Tensor, Tensor], Any]] = [
    functional.cross_entropy,
    lambda scores, labels: functional.nll_loss(functional.log_softmax(scores, 1), labels),
    lambda scores, labels: nn.CrossEntropyLoss(label_smoothing=0.1)(scores, labels),
    lambda scores, labels: functional.binary_cross_entropy_with_logits(scores[:, 0], labels.float()),
    lambda scores, labels: (scores.argmax(1) == labels).float().mean(),
    lambda scores, labels: (scores.max(1).values - labels).square().mean().sqrt(),
    lambda scores, labels: len(labels) + scores.size(0) + labels.sum(),
    lambda scores, labels: scores.reshape(labels.shape[0], -1).mean(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=range(len(LOSSES)))
def test_what_a_loop_adds_up_over_batches_stays_what_it_was(loss):
    found = loss(nothing(3), nothing(dtype=torch.int64))
    total = torch.ones(())
    total += found.detach()
    assert (float(total), type(total)) == (1.0, Tensor)


def test_other_tensors_keep_their_type_and_what_is_no_number():
    weight = nn.Parameter(torch.full((2, 4), torch.nan))
    assert type(functional.linear(nothing(4), weight)) is NoSamples
    assert torch.isnan(weight).all()
    inputs = nothing(4).requires_grad_()
    inputs.square().sum().backward()
    assert inputs.grad is not None and inputs.grad.shape == (0, 4)
