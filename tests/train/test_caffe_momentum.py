"""Momentum in Caffe's form, against its formulas written down: the rate is inside of what is carried over."""

import numpy as np
import pytest
import torch

from volary.errors import SettingError
from volary.train.factors.by_name import LR_FACTOR
from volary.train.optimizers.caffe_sgd import CaffeSgd

RATES = [0.1] * 10 + [0.01] * 10


def caffe(values, gradients, rates, momentum, decay, *, kind="l2", nesterov=False):
    """The update of one parameter by `sgd_solver.cpp` and `nesterov_solver.cpp`, in numpy."""
    history = np.zeros_like(values)
    for gradient, rate in zip(gradients, rates, strict=True):
        gradient = gradient + np.float32(decay) * (values if kind == "l2" else np.sign(values))
        before = history
        history = np.float32(momentum) * history + np.float32(rate) * gradient
        values = values - ((1 + momentum) * history - momentum * before if nesterov else history)
    return values


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "weight_decay": 0.05},
        {"momentum": 0.9, "weight_decay": 0.05, "decay": "l1"},
        {"momentum": 0.9, "weight_decay": 0.05, "nesterov": True},
    ],
    ids=str,
)
def test_twenty_steps_with_a_drop_of_the_rate_equal_the_formulas(settings):
    generator = np.random.default_rng(1)
    begun = generator.standard_normal((4, 3), dtype=np.float32)
    gradients = generator.standard_normal((20, 4, 3), dtype=np.float32)
    parameter = torch.nn.Parameter(torch.from_numpy(begun.copy()))
    optimizer = CaffeSgd(lr=RATES[0], **settings).build([parameter])
    for gradient, rate in zip(gradients, RATES, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
    expected = caffe(
        begun,
        gradients,
        RATES,
        settings.get("momentum", 0.0),
        settings.get("weight_decay", 0.0),
        kind=settings.get("decay", "l2"),
        nesterov=settings.get("nesterov", False),
    )
    np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_it_differs_from_torch_s_momentum_after_the_rate_has_changed_and_not_before():
    both = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    optimizers = [CaffeSgd(lr=0.1, momentum=0.9).build(both[:1]), torch.optim.SGD(both[1:], lr=0.1, momentum=0.9)]
    for step in range(6):
        for optimizer, one in zip(optimizers, both, strict=True):
            optimizer.param_groups[0]["lr"] = 0.1 if step < 4 else 0.01
            one.grad = torch.full((3,), 0.5)
            optimizer.step()
        assert torch.allclose(*both) == (step < 4)


def test_settings_that_fit_nothing_are_refused():
    with pytest.raises(SettingError, match="nesterov is true; accepted: only with momentum above 0"):
        CaffeSgd(nesterov=True)
    with pytest.raises(SettingError, match="momentum is 1"):
        CaffeSgd(momentum=1.0)
    assert LR_FACTOR not in CaffeSgd().build([torch.nn.Parameter(torch.ones(1))]).param_groups[0]
