"""States of random generators that are taken with each step are what a copy of all of them would be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from volary.train.state.seeds import StepGenerators, generators_state, kept_generators, restore_generators, seed_all

DRAWS: dict[str, Callable[[], Any]] = {
    "nothing": lambda: None,
    "python": random.random,
    "python's normal numbers come in pairs": lambda: random.gauss(0, 1),
    "numpy": np.random.rand,
    "numpy's normal numbers come in pairs": np.random.randn,
    "torch": lambda: torch.rand(1),
    "seed": lambda: seed_all(3),
    "another generator of numpy": lambda: np.random.set_bit_generator(np.random.MT19937(5)),
}


@pytest.fixture(autouse=True)
def _own_generators() -> Iterator[None]:
    bits = np.random.get_bit_generator()
    with kept_generators():
        seed_all(1)
        yield
        np.random.set_bit_generator(bits)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found["python"] == expected["python"]
    for mine, other in zip(found["numpy"], expected["numpy"], strict=True):
        assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other
    assert torch.equal(found["torch"], expected["torch"])


@pytest.mark.parametrize("draw", DRAWS)
def test_what_is_drawn_between_two_steps_is_in_the_second_state(draw):
    generators = StepGenerators()
    for number in range(9):
        if number % 3:
            DRAWS[draw]()
        assert_same(generators.state(), generators_state())


def test_a_state_from_which_nothing_was_drawn_is_not_copied_anew():
    generators = StepGenerators()
    before = generators.state()
    assert generators.state()["python"] is before["python"] and generators.state()["numpy"] is before["numpy"]
    random.random()
    after = generators.state()
    assert after["python"] is not before["python"] and after["numpy"] is before["numpy"]


def test_a_kept_state_is_gone_back_to_whatever_was_drawn_meanwhile():
    generators = StepGenerators()
    np.random.randn()
    before = generators.state()
    drawn = random.random(), np.random.randn(), np.random.randn(), float(torch.rand(1))
    generators.state()
    restore_generators(before)
    assert (random.random(), np.random.randn(), np.random.randn(), float(torch.rand(1))) == drawn
