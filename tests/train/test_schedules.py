import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from volary.errors import SettingError
from volary.session import Session, SessionError
from volary.session.values.period import Period
from volary.train.schedules import ROOM
from volary.train.schedules.constant import Constant
from volary.train.schedules.cosine import Cosine
from volary.train.update.session_schedule import in_steps, schedule_of

STEPS = 40
SETTINGS = {
    "chain": {"parts": (ROOM.load("constant")(), ROOM.load("cosine")()), "steps": (10,)},
    "constant": {},
    "cyclic": {"up": 6},
    "one_cycle": {},
    "plateau": {},
    "piecewise": {"steps": (5, 20), "factors": (0.5, 0.1), "between": "linear"},
    "restarts": {"every": 9},
    "cosine": {},
    "exponential": {"gamma": 0.9},
    "inverse": {},
    "multistep": {"milestones": (5, 20, 21)},
    "polynomial": {"power": 2.0},
    "sigmoid": {"middle": 20, "gamma": -0.3},
    "step": {"every": 7, "gamma": 0.5},
}


NO_MOMENTUM = {"cycle_momentum": False}


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
        (
            "one_cycle",
            {"steps": STEPS + 1},
            lr_scheduler.OneCycleLR,
            {"max_lr": 1.0, "total_steps": STEPS + 1, **NO_MOMENTUM},
        ),
        (
            "one_cycle",
            {"steps": STEPS + 1, "pct_start": 0.6, "anneal": "linear", "div_factor": 5.0, "final_div_factor": 10.0},
            lr_scheduler.OneCycleLR,
            {"max_lr": 1.0, "total_steps": STEPS + 1, "pct_start": 0.6, "anneal_strategy": "linear"}
            | {"div_factor": 5.0, "final_div_factor": 10.0, **NO_MOMENTUM},
        ),
        (
            "cyclic",
            {"up": 6},
            lr_scheduler.CyclicLR,
            {"base_lr": 0.25, "max_lr": 1.0, "step_size_up": 6, **NO_MOMENTUM},
        ),
        (
            "cyclic",
            {"floor": 0.1, "up": 3, "down": 8, "mode": "triangular2"},
            lr_scheduler.CyclicLR,
            {
                "base_lr": 0.1,
                "max_lr": 1.0,
                "step_size_up": 3,
                "step_size_down": 8,
                "mode": "triangular2",
                **NO_MOMENTUM,
            },
        ),
        (
            "cyclic",
            {"floor": 0.1, "up": 5, "mode": "exp_range", "gamma": 0.95},
            lr_scheduler.CyclicLR,
            {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 5, "mode": "exp_range", "gamma": 0.95, **NO_MOMENTUM},
        ),
        ("restarts", {"every": 9}, lr_scheduler.CosineAnnealingWarmRestarts, {"T_0": 9}),
        (
            "restarts",
            {"every": 3, "times": 2, "floor": 0.1},
            lr_scheduler.CosineAnnealingWarmRestarts,
            {"T_0": 3, "T_mult": 2, "eta_min": 0.1},
        ),
        (
            "piecewise",
            {"steps": (0, 20), "factors": (0.2, 1.0), "between": "linear"},
            lr_scheduler.LinearLR,
            {"start_factor": 0.2, "total_iters": 20},
        ),
        (
            "piecewise",
            {"steps": (0, 7), "factors": (0.5, 1.0)},
            lr_scheduler.ConstantLR,
            {"factor": 0.5, "total_iters": 7},
        ),
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
        (
            "constant",
            {"warmup": -1},
            "warmup is -1; accepted: a whole number of steps, 0 or more, or a period as 2 epochs",
        ),
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
        ("chain", {"parts": (), "steps": ()}, "parts is a list of 0; accepted: two schedules or more"),
        (
            "chain",
            {"parts": (1, 2, 3), "steps": (5,)},
            "steps is [5]; accepted: a length of 1 step or more for each part but the last (2)",
        ),
        ("cyclic", {"up": 0}, "up is 0; accepted: a whole number of steps, 1 or more"),
        ("cyclic", {"gamma": 0.5}, "gamma is 0.5; accepted: another than 1 only with mode exp_range"),
        ("cyclic", {"floor": 2.0}, "floor is 2; accepted: from 0 to 1"),
        ("one_cycle", {"pct_start": 1.0}, "pct_start is 1; accepted: above 0, below 1"),
        ("one_cycle", {"div_factor": 0.5}, "div_factor is 0.5; accepted: 1 or more"),
        (
            "piecewise",
            {"steps": (5, 5), "factors": (1.0, 1.0)},
            "steps is [5, 5]; accepted: increasing steps, 0 or more",
        ),
        (
            "piecewise",
            {"steps": (5, 6), "factors": (1.0,)},
            "factors is [1.0]; accepted: as many as steps (2), each 0 or more",
        ),
        ("restarts", {"every": 0}, "every is 0; accepted: a whole number of steps, 1 or more"),
        ("restarts", {"every": 1, "times": 0}, "times is 0; accepted: a whole number, 1 or more"),
        ("cosine", {"floor": 1.5}, "floor is 1.5; accepted: from 0 to 1"),
        ("cosine", {"steps": 0}, "steps is 0; accepted: a whole number of steps, 1 or more"),
    ],
)
def test_what_is_out_of_range_is_refused(name, settings, sentence):
    with pytest.raises(SettingError) as caught:
        ROOM.load(name)(**settings)
    assert str(caught.value) == sentence


@given(
    steps=st.lists(st.integers(0, 50), min_size=1, max_size=6, unique=True).map(sorted),
    factors=st.lists(st.floats(0, 1), min_size=6, max_size=6),
    step=st.integers(0, 60),
)
def test_piecewise_lines_equal_numpy_s_interpolation_and_pieces_its_search(steps, factors, step):
    own = {"steps": tuple(steps), "factors": tuple(factors[: len(steps)])}
    lines = ROOM.load("piecewise")(**own, between="linear").factor(step, STEPS)
    assert lines == pytest.approx(float(np.interp(step, steps, own["factors"])), abs=1e-12)
    place = max(0, int(np.searchsorted(steps, step, side="right")) - 1)
    assert ROOM.load("piecewise")(**own).factor(step, STEPS) == own["factors"][place]


def test_a_chain_equals_torch_s_sequential_schedulers():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=9),
        lr_scheduler.StepLR(optimizer, 4, gamma=0.5),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
    ]
    both = lr_scheduler.SequentialLR(optimizer, theirs, milestones=[10, 25])
    rates = []
    for _ in range(STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        both.step()
    parts = (ROOM.load("constant")(warmup=10), ROOM.load("step")(every=4, gamma=0.5), make("exponential"))
    assert factors(ROOM.load("chain")(parts=parts, steps=(10, 15))) == pytest.approx(rates, rel=1e-9)


def test_the_parts_of_a_chain_have_their_share_of_the_run_as_their_length():
    parts = (make("polynomial"), make("one_cycle"), make("cosine"))
    found = factors(ROOM.load("chain")(parts=parts, steps=(12, 8)))
    assert found == [*factors(parts[0], 12), *factors(parts[1], 8), *factors(parts[2], STEPS - 20)]


def test_a_chain_is_read_with_its_parts_by_name_and_written_as_it_was_read(tmp_path):
    chain = {"name": "chain", "steps": [10], "parts": [{"name": "constant", "warmup": 5}, "cosine"]}
    session = Session(network="lenet", data={"source": "digits"}, schedule=chain)
    assert session.schedule.parts == (Constant(warmup=5), Cosine())
    file = tmp_path / "session.yaml"
    file.write_text(session.to_yaml(), encoding="utf-8")
    assert Session.read(file) == session
    with pytest.raises(SessionError, match=r"schedule\.parts: unknown name 'cosin'; did you mean 'cosine'"):
        Session(network="lenet", data={"source": "digits"}, schedule={**chain, "parts": ["constant", "cosin"]})


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_warm_up_in_epochs_is_one_of_as_many_steps(name):
    for period, steps in ((Period(3, "epochs"), 12), (Period(7, "steps"), 7), (Period(0, "never"), 0)):
        assert in_steps(make(name, warmup=period), 4) == make(name, warmup=steps)


def test_epochs_in_a_part_of_a_chain_are_counted_in_steps_and_refused_where_they_have_no_length():
    chain = ROOM.load("chain")(parts=(Constant(warmup=Period(2, "epochs")), Cosine()), steps=(9,))
    assert in_steps(chain, 4).parts == (Constant(warmup=8), Cosine())
    with pytest.raises(SettingError, match="2 epochs cannot be counted in steps: the data is a stream"):
        in_steps(chain, None)


def test_a_session_says_its_warm_up_in_steps_or_in_epochs():
    of_session = {"network": "lenet", "data": {"source": "digits"}}
    for said, warmup in ((5, 5), ("2 epochs", Period(2, "epochs")), ("1 epoch", Period(1, "epochs"))):
        session = Session(**of_session, schedule={"name": "cosine", "warmup": said})
        assert session.schedule == Cosine(warmup=warmup)
        assert f"warmup: {said}" in session.to_yaml()
    with pytest.raises(SessionError, match=r"schedule\.warmup: is 'soon'; accepted: a whole number or '<n> steps'"):
        Session(**of_session, schedule={"name": "cosine", "warmup": "soon"})


@pytest.mark.parametrize(("how", "times"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_rate_is_scaled_by_the_workers_that_share_a_batch(how, times):
    settings = {"network": "lenet", "data": {"source": "digits"}, "schedule": {"name": "step", "every": 2}}
    session = Session(**settings, train={"scale_lr": how}, strategy={"workers": 4})
    assert factors(schedule_of(session, 10)) == [times * factor for factor in factors(session.schedule)]


def test_a_sigmoid_is_caffe_s_formula_and_a_half_in_its_middle():
    found = factors(make("sigmoid"))
    assert found[20] == 0.5
    assert found == pytest.approx([1 / (1 + math.exp(0.3 * (step - 20))) for step in range(STEPS)])
