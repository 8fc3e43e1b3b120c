"""LARS and LAMB, against the formulas of their papers written down in numpy with 64 bits; see docs/training.md."""

import numpy as np
import pytest
import torch

from volary.train.optimizers.lamb import Lamb
from volary.train.optimizers.lars import Lars

SHAPES = [(4, 3), (5,), ()]
RATES = [0.1] * 6 + [0.02] * 6


def lars(values, gradients, *, momentum=0.9, decay=0.0005, trust=0.001):
    """Algorithm 1 of You, Gitman & Ginsburg 2017 for one parameter."""
    carried = np.zeros_like(values)
    for gradient, rate in zip(gradients, RATES, strict=True):
        size, slope = np.linalg.norm(values), np.linalg.norm(gradient)
        local = trust * size / (slope + decay * size) if size and slope else 1.0
        carried = momentum * carried + rate * local * (gradient + decay * values)
        values = values - carried
    return values


def lamb(values, gradients, *, betas=(0.9, 0.999), eps=1e-6, decay=0.01):
    """Algorithm 2 of You et al. 2020 for one parameter, with phi(z) = z."""
    mean, square = np.zeros_like(values), np.zeros_like(values)
    for step, (gradient, rate) in enumerate(zip(gradients, RATES, strict=True), start=1):
        mean = betas[0] * mean + (1 - betas[0]) * gradient
        square = betas[1] * square + (1 - betas[1]) * gradient**2
        ratio = mean / (1 - betas[0] ** step) / (np.sqrt(square / (1 - betas[1] ** step)) + eps)
        change = ratio + decay * values
        size, length = np.linalg.norm(values), np.linalg.norm(change)
        values = values - rate * (size / length if size and length else 1.0) * change
    return values


CASES = [
    (Lars, {}, lars, {}),
    (Lars, {"momentum": 0.0, "weight_decay": 0.1, "trust": 0.02}, lars, {"momentum": 0.0, "decay": 0.1, "trust": 0.02}),
    (Lamb, {}, lamb, {}),
    (Lamb, {"betas": (0.5, 0.9), "eps": 0.1, "weight_decay": 0.0}, lamb, {"betas": (0.5, 0.9), "eps": 0.1, "decay": 0}),
]


@pytest.mark.parametrize("begins_at_zero", [False, True])
@pytest.mark.parametrize(("rule", "settings", "formula", "own"), CASES)
def test_twelve_steps_with_a_drop_of_the_rate_equal_the_formula(rule, settings, formula, own, begins_at_zero):
    generator = np.random.default_rng(1)
    begun = [generator.standard_normal(shape) * (not begins_at_zero) for shape in SHAPES]
    gradients = [[generator.standard_normal(shape) for shape in SHAPES] for _ in RATES]
    values = [torch.nn.Parameter(torch.tensor(one, dtype=torch.float64)) for one in begun]
    optimizer = rule(lr=RATES[0], **settings).build(values)
    for rate, of_step in zip(RATES, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        for one, gradient in zip(values, of_step, strict=True):
            one.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    for number, one in enumerate(values):
        expected = formula(np.asarray(begun[number]), [of_step[number] for of_step in gradients], **own)
        np.testing.assert_allclose(one.detach().numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rule", [Lars, Lamb])
def test_parameters_without_a_gradient_or_with_one_of_zeros_are_updated_as_the_formula_says(rule):
    values = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    values[0].grad = torch.zeros(3)
    optimizer = rule(weight_decay=0.0).build(values)
    optimizer.step()
    assert all(torch.equal(one, torch.ones(3)) for one in values)
    assert values[1] not in optimizer.state


def test_lamb_s_step_is_as_long_as_the_rate_says_whatever_the_gradient():
    for factor in (1e-3, 1.0, 1e3):  # no gradient is 0: without eps its change would be none
        one = torch.nn.Parameter(torch.full((4, 4), 2.0))
        one.grad = factor * torch.linspace(-1, 2.1, 16).view(4, 4)
        Lamb(lr=0.01, eps=0.0).build([one]).step()
        assert float((one.detach() - 2.0).norm()) == pytest.approx(0.01 * 8, rel=1e-4)
