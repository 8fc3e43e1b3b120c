"""Each consistency model keeps its promises in thousands of schedules, whatever befalls them."""

from __future__ import annotations

from random import Random

import pytest

from simulation._models import MODELS, keeps_what_all_promise
from simulation._run import Run
from simulation._seeds import every

models = pytest.mark.parametrize("model", MODELS)


@models
def test_promises_hold_in_40_schedules(model):
    every(range(40), lambda seed: holds(model, seed))


@pytest.mark.slow
@models
@pytest.mark.parametrize("thousand", range(5))
def test_promises_hold_in_20000_schedules(model, thousand):
    every(range(1000 * thousand, 1000 * (thousand + 1)), lambda seed: holds(model, seed))


@models
def test_a_seed_is_one_schedule(model):
    once, again = (played(model, seed=7) for _ in range(2))
    assert once.history == again.history


def played(model, seed):
    case, _ = MODELS[model](Random(seed))
    run = Run(case, seed)
    run.play()
    return run


def holds(model, seed):
    _, keeps = MODELS[model](Random(seed))
    run = played(model, seed)
    keeps_what_all_promise(run)
    keeps(run)
