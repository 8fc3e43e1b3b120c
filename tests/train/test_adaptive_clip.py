"""Gradients clipped by the norms of the weights, against the paper's formula; and an update rule of all parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from train._training import session
from volary.errors import SettingError
from volary.train.optimizers.lbfgs import Lbfgs
from volary.train.update.adaptive_clip import clip_by_weights

SHAPES = [(4, 3), (3, 2, 5, 5), (6,), ()]


def by_hand(weights: np.ndarray, gradient: np.ndarray, most: float) -> np.ndarray:
    """Equation 3 of Brock et al. 2021, unit by unit."""
    if weights.ndim < 2:
        size, slope = np.linalg.norm(weights), np.linalg.norm(gradient)
        return gradient * min(1.0, most * max(size, 1e-3) / slope)
    return np.stack(
        [by_hand(w.ravel(), g.ravel(), most).reshape(g.shape) for w, g in zip(weights, gradient, strict=True)]
    )


@pytest.mark.parametrize("most", [0.01, 0.5, 100.0])
def test_a_step_is_by_gradients_that_are_clipped_by_the_weights_of_their_units(most: float) -> None:
    generator = torch.Generator().manual_seed(1)
    parameters = [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64)) for shape in SHAPES]
    parameters[1].data[0] = 0
    optimizer = clip_by_weights(torch.optim.SGD(parameters, lr=1.0), most)
    gradients = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    before = [one.detach().clone() for one in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    optimizer.step()
    for was, now, gradient in zip(before, parameters, gradients, strict=True):
        expected = was.numpy() - by_hand(was.numpy(), gradient.numpy(), most)
        np.testing.assert_allclose(now.detach().numpy(), expected, atol=1e-12)


def test_lbfgs_without_a_closure_moves_as_torch_s_with_one_iteration() -> None:
    def trained_by(make: Any, *, closure: bool) -> list[torch.Tensor]:
        torch.manual_seed(1)
        module, inputs = nn.Linear(3, 2).double(), torch.randn(20, 3, dtype=torch.float64)
        optimizer = make(module.parameters())

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            found = (module(inputs).square() - inputs.sum(1, keepdim=True)).square().mean()
            found.backward()
            return found

        for _ in range(15):
            if closure:
                optimizer.step(loss)
            else:
                loss()
                optimizer.step()
        state = optimizer.state_dict()["state"][0].values()
        lists = [tensor for one in state for tensor in (one if isinstance(one, list) else [one])]
        kept = sum(tensor.numel() for tensor in lists if torch.is_tensor(tensor) and tensor.numel() > 1)
        assert kept == 8 * Lbfgs(history_size=4).kept, "of the network's 8 values"
        return [one.detach() for one in module.parameters()]

    theirs = trained_by(lambda own: torch.optim.LBFGS(own, lr=0.1, max_iter=1, history_size=4), closure=True)
    ours = trained_by(Lbfgs(lr=0.1, history_size=4).build, closure=False)
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"optimizer": "lbfgs", "strategy": {"workers": 2, "partition": "sharded"}},
            "optimizer is lbfgs, and .*; accepted: optimizer=adam, which updates each parameter by itself",
        ),
        (
            {"train": {"clip_adaptive": 0.1}, "strategy": {"workers": 2, "partition": "sharded"}},
            "train.clip_adaptive is 0.1, and .*; accepted: train.clip_value, or partition=data",
        ),
        (
            {"optimizer": "lbfgs", "train": {"parameters": [{"match": "*", "lr": 2}]}},
            "train.parameters is set, and optimizer lbfgs updates all parameters together",
        ),
        (
            {"optimizer": "rprop", "schedule": "cosine"},
            "schedule is cosine, and optimizer rprop takes the learning rate for its first step alone",
        ),
        (
            {"train": {"compile": True, "recompute": ["a"]}},
            "train.compile is true, and train.recompute chooses layers .*; accepted: one of the two",
        ),
        (
            {"train": {"compile": True}, "strategy": {"workers": 2, "codec": "factors"}},
            "train.compile is true, and codec factors looks at layers as they run",
        ),
        (
            {"train": {"compile": True}, "strategy": {"workers": 2, "partition": "pipeline"}},
            "train.compile is true, and .*; accepted: compile=false, or partition=data",
        ),
        ({"optimizer": "rprop", "schedule": {"name": "constant", "warmup": 3}}, "schedule is constant with a warmup"),
    ],
)
def test_a_rule_is_refused_where_it_cannot_be(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        session("Exact", **settings)
