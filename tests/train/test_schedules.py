import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from volary.errors import SettingError
from volary.train.schedules import ROOM

STEPS = 40
SETTINGS = {
    "constant": {},
    "cosine": {},
    "exponential": {"gamma": 0.9},
    "inverse": {},
    "multistep": {"milestones": (5, 20, 21)},
    "polynomial": {"power": 2.0},
    "sigmoid": {"middle": 20, "gamma": -0.3},
    "step": {"every": 7, "gamma": 0.5},
}


def make(name, **more):
    return ROOM.load(name)(**SETTINGS[name], **more)


def torchs(scheduler, **options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = scheduler(optimizer, **options)
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def factors(schedule, steps=STEPS):
    return [schedule.factor(step, steps) for step in range(steps)]


def test_all_schedules_are_tried():
    assert set(ROOM.names()) == set(SETTINGS)


@pytest.mark.parametrize(
    ("name", "settings", "scheduler", "options"),
    [
        ("constant", {}, lr_scheduler.LambdaLR, {"lr_lambda": lambda step: 1.0}),
        ("step", {"every": 7, "gamma": 0.5}, lr_scheduler.StepLR, {"step_size": 7, "gamma": 0.5}),
        ("multistep", {"milestones": (5, 20, 21)}, lr_scheduler.MultiStepLR, {"milestones": [5, 20, 21]}),
        ("exponential", {"gamma": 0.9}, lr_scheduler.ExponentialLR, {"gamma": 0.9}),
        ("polynomial", {"power": 2.0}, lr_scheduler.PolynomialLR, {"total_iters": STEPS, "power": 2.0}),
        ("polynomial", {"max_steps": 15}, lr_scheduler.PolynomialLR, {"total_iters": 15}),
        ("cosine", {}, lr_scheduler.CosineAnnealingLR, {"T_max": STEPS}),
        ("cosine", {"floor": 0.2}, lr_scheduler.CosineAnnealingLR, {"T_max": STEPS, "eta_min": 0.2}),
        ("constant", {"warmup": 10}, lr_scheduler.LinearLR, {"start_factor": 0.1, "total_iters": 9}),
    ],
)
def test_factors_equal_torchs(name, settings, scheduler, options):
    assert factors(ROOM.load(name)(**settings)) == pytest.approx(torchs(scheduler, **options), rel=1e-9, abs=1e-12)


@given(
    step=st.integers(0, 10_000),
    gamma=st.floats(1e-6, 0.9),
    power=st.floats(0.1, 4),
    size=st.integers(1, 1000),
)
def test_factors_equal_caffes_formulae(step, gamma, power, size):
    """GetLearningRate in BVLC/caffe src/caffe/solvers/sgd_solver.cpp, with base_lr 1."""
    caffe = {
        "step": gamma ** (step // size),
        "exponential": gamma**step,
        "inverse": (1 + gamma * step) ** -power,
        "polynomial": (1 - step / 10_001) ** power,
        "multistep": gamma ** sum(step >= value for value in (size, size + 5)),
    }
    ours = {
        "step": ROOM.load("step")(every=size, gamma=gamma),
        "exponential": ROOM.load("exponential")(gamma=gamma),
        "inverse": ROOM.load("inverse")(gamma=gamma, power=power),
        "polynomial": ROOM.load("polynomial")(power=power, max_steps=10_001),
        "multistep": ROOM.load("multistep")(milestones=(size, size + 5), gamma=gamma),
    }
    for name, schedule in ours.items():
        assert schedule.factor(step, 50) == pytest.approx(caffe[name], rel=1e-9), name


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_warm_up_multiplies_the_first_steps_and_changes_no_later_one(name):
    plain, warm = factors(make(name)), factors(make(name, warmup=8))
    assert warm[:8] == pytest.approx([factor * (step + 1) / 8 for step, factor in enumerate(plain[:8])])
    assert warm[8:] == plain[8:]


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_factor_is_between_0_and_1_also_beyond_the_end(name):
    assert all(0 <= make(name, warmup=3).factor(step, STEPS) <= 1 for step in range(3 * STEPS))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("constant", {"warmup": -1}, "warmup is -1; accepted: a whole number of steps, 0 or more"),
        ("step", {"every": 0}, "every is 0; accepted: a whole number of steps, 1 or more"),
        ("step", {"every": 1, "gamma": 0.0}, "gamma is 0; accepted: above 0"),
        ("multistep", {"milestones": ()}, "milestones is []; accepted: increasing steps, 1 or more"),
        ("multistep", {"milestones": (3, 3)}, "milestones is [3, 3]; accepted: increasing steps, 1 or more"),
        ("multistep", {"milestones": (0, 3)}, "milestones is [0, 3]; accepted: increasing steps, 1 or more"),
        ("exponential", {"gamma": 1.5}, "gamma is 1.5; accepted: above 0, up to 1"),
        ("polynomial", {"power": 0.0}, "power is 0; accepted: above 0"),
        ("polynomial", {"max_steps": 0}, "max_steps is 0; accepted: a whole number of steps, 1 or more"),
        ("inverse", {"gamma": 0.0}, "gamma is 0; accepted: above 0"),
        ("sigmoid", {"middle": -1, "gamma": 1.0}, "middle is -1; accepted: a whole number of steps, 0 or more"),
        ("sigmoid", {"middle": 1, "gamma": 0.0}, "gamma is 0; accepted: below or above 0"),
        ("cosine", {"floor": 1.5}, "floor is 1.5; accepted: from 0 to 1"),
        ("cosine", {"steps": 0}, "steps is 0; accepted: a whole number of steps, 1 or more"),
    ],
)
def test_what_is_out_of_range_is_refused(name, settings, sentence):
    with pytest.raises(SettingError) as caught:
        ROOM.load(name)(**settings)
    assert str(caught.value) == sentence


def test_a_sigmoid_is_caffe_s_formula_and_a_half_in_its_middle():
    found = factors(make("sigmoid"))
    assert found[20] == 0.5
    assert found == pytest.approx([1 / (1 + math.exp(0.3 * (step - 20))) for step in range(STEPS)])
