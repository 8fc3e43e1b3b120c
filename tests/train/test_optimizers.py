import copy
from dataclasses import asdict, fields
from inspect import signature

import pytest
import torch

from volary.errors import SettingError
from volary.train.optimizers import ROOM

THEIRS = {
    "adafactor": torch.optim.Adafactor,
    "adamax": torch.optim.Adamax,
    "asgd": torch.optim.ASGD,
    "nadam": torch.optim.NAdam,
    "radam": torch.optim.RAdam,
    "rprop": torch.optim.Rprop,
    "adadelta": torch.optim.Adadelta,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
}
CASES = [
    ("adadelta", {}),
    ("adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.01}),
    ("adagrad", {}),
    ("adagrad", {"lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("adam", {}),
    ("adam", {"betas": (0.5, 0.9), "weight_decay": 0.01, "amsgrad": True}),
    ("adamw", {}),
    ("adamw", {"lr": 0.01, "weight_decay": 0.1}),
    ("adafactor", {}),
    ("adafactor", {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-8, 0.01), "d": 2.0, "weight_decay": 0.1}),
    ("adamax", {}),
    ("adamax", {"betas": (0.5, 0.9), "weight_decay": 0.01}),
    ("asgd", {}),
    ("asgd", {"lambd": 0.1, "alpha": 0.5, "t0": 5.0, "weight_decay": 0.01}),
    ("nadam", {}),
    ("nadam", {"momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("radam", {}),
    ("radam", {"lr": 0.1, "betas": (0.5, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("rprop", {}),
    ("rprop", {"lr": 0.1, "etas": (0.4, 1.3), "step_sizes": (0.01, 0.2)}),
    ("rmsprop", {}),
    ("rmsprop", {"momentum": 0.9, "centered": True, "weight_decay": 0.01}),
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("sgd", {"momentum": 0.9, "dampening": 0.5}),
]
OURS = [
    ("caffe_sgd", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),  # see test_caffe_momentum.py
    ("conservative", {"steps": 3}),
    ("conservative", {"gamma": 0.5, "of": ROOM.load("adam")()}),
    ("lamb", {"weight_decay": 0.1}),  # this one and lars: see test_trust_ratio.py
    ("lars", {}),
    ("lbfgs", {"history_size": 3}),
    ("muon", {"lr": 0.01}),
    ("signum", {"weight_decay": 0.1}),
]
every_rule = pytest.mark.parametrize(("name", "settings"), CASES, ids=lambda value: str(value))


def parameters():
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in ((50, 20, 5, 5), (50,), (), (7, 3))]


def steps(optimizer, own, count, first=0):
    for step in range(first, first + count):
        torch.manual_seed(step)
        for parameter in own:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


def test_all_rules_are_tried():
    assert {name for name, _ in CASES} == set(THEIRS)
    assert {name for name, _ in CASES + OURS} == set(ROOM.names())


@every_rule
def test_twenty_steps_equal_torchs_own_loop_to_rounding(name, settings):
    mine, theirs = parameters(), parameters()
    steps(ROOM.load(name)(**settings).build(iter(mine)), mine, 20)
    lr = {"lr": 0.01} if name == "sgd" else {}
    steps(THEIRS[name](theirs, **{**lr, **settings}, foreach=False), theirs, 20)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "settings"), CASES + OURS, ids=str)
def test_a_restored_optimiser_goes_on_bit_for_bit(name, settings):
    whole, rule = parameters(), ROOM.load(name)(**settings)
    steps(rule.build(whole), whole, 10)
    first = parameters()
    stopped = rule.build(first)
    steps(stopped, first, 4)
    second = [torch.nn.Parameter(parameter.detach().clone()) for parameter in first]
    resumed = rule.build(second)
    resumed.load_state_dict(copy.deepcopy(stopped.state_dict()))
    steps(resumed, second, 6, first=4)
    assert all(torch.equal(a, b) for a, b in zip(second, whole, strict=True))


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_names_and_defaults_are_torchs(name):
    theirs = signature(THEIRS[name]).parameters
    for field in fields(ROOM.load(name)):
        if (name, field.name) != ("sgd", "lr"):  # torch: 0.001
            assert field.default == theirs[field.name].default, field.name


@pytest.mark.parametrize("settings", [{"momentum": 0.0}, {}, {"momentum": 0.5, "weight_decay": 0.1}], ids=str)
def test_signum_moves_each_value_by_the_rate_against_the_sign_of_its_average(settings):
    rule, own = ROOM.load("signum")(lr=0.01, **settings), parameters()
    optimizer, expected = rule.build(own), [one.detach().clone() for one in own]
    averages = [torch.zeros_like(one) for one in own]
    for rate in (0.01, 0.01, 0.002):
        optimizer.param_groups[0]["lr"] = rate
        steps(optimizer, own, 1, first=int(1000 * rate))
        for number, one in enumerate(own):
            averages[number] = rule.momentum * averages[number] + (1 - rule.momentum) * one.grad
            decayed = rule.weight_decay * expected[number]
            expected[number] = expected[number] - rate * (averages[number].sign() + decayed)
    torch.testing.assert_close([one.detach() for one in own], expected)


def test_conservative_steps_are_those_of_another_optimiser_by_a_gradient_that_pulls_back_to_where_they_began():
    own, expected = parameters(), parameters()
    rule = ROOM.load("conservative")(lr=0.01, gamma=0.5, steps=3, of=ROOM.load("adam")()).build(own)
    adam = torch.optim.Adam(expected, lr=0.01)
    for step in range(7):
        if step % 3 == 0:
            began_at = [one.detach().clone() for one in expected]
        for number, one in enumerate(own):
            one.grad = torch.full_like(one, number - step)
            pull = 0.5 * (expected[number].detach() - began_at[number])
            expected[number].grad = torch.full_like(one, number - step) + pull
        rule.step()
        adam.step()
    torch.testing.assert_close(own, expected)


def test_conservative_steps_come_to_the_minimum_of_the_subproblem():
    (own,) = [torch.nn.Parameter(torch.tensor(4.0))]
    rule = ROOM.load("conservative")(lr=0.2, gamma=1.0, steps=100).build([own])
    for _ in range(100):
        own.grad = 3 * (own.detach() - 2)  # of 3 / 2 (w - 2)^2, from 4
        rule.step()
    torch.testing.assert_close(own.detach(), torch.tensor((3 * 2 + 1.0 * 4) / 4))


@pytest.mark.parametrize("adjust", ["match_rms_adamw", "original"])
def test_muon_is_torch_s_for_matrices_and_adamw_for_all_else(adjust):
    mine, theirs = parameters(), parameters()
    rule = ROOM.load("muon")(lr=0.01, weight_decay=0.2, betas=(0.8, 0.9), adjust_lr_fn=adjust).build(mine)
    matrices, others = [[one for one in theirs if (one.ndim == 2) is flat] for flat in (True, False)]
    muon = torch.optim.Muon(matrices, lr=0.01, weight_decay=0.2, adjust_lr_fn=adjust)
    adamw = torch.optim.AdamW(others, lr=0.01, weight_decay=0.2, betas=(0.8, 0.9))
    for rate in (0.01, 0.002):
        for optimizer in (rule, muon, adamw):
            optimizer.param_groups[0]["lr"] = rate
        torch.manual_seed(0)
        for one, other in zip(mine, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for optimizer in (rule, muon, adamw):
            optimizer.step()
    assert len(matrices) == 1
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
    assert not torch.equal(mine[-1], parameters()[-1])


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_muon_takes_parameters_of_one_kind_alone(shape):
    own = [torch.nn.Parameter(torch.ones(shape))]
    steps(ROOM.load("muon")().build(own), own, 1)
    assert not torch.equal(own[0], torch.ones(shape))


@pytest.mark.parametrize(
    ("name", "settings", "fused"),
    [
        ("adam", {}, True),
        ("adamw", {}, True),
        ("adagrad", {}, True),
        ("sgd", {"momentum": 0.9}, True),
        ("sgd", {"weight_decay": 0.1}, True),
        ("sgd", {}, None),
    ],
)
def test_the_fused_update_is_chosen_where_it_is_the_quicker(name, settings, fused):
    optimizer = ROOM.load(name)(**settings).build(parameters())
    assert optimizer.param_groups[0]["fused"] is fused


def test_parameters_that_fusing_does_not_take_are_updated_too():
    own = [torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))]
    steps(ROOM.load("adam")().build(own), own, 1)
    assert not torch.equal(own[0], torch.ones(3, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("sgd", {"lr": 0.0}, "lr is 0; accepted: above 0"),
        ("sgd", {"lr": float("nan")}, "lr is nan; accepted: above 0"),
        ("sgd", {"momentum": 1.0}, "momentum is 1; accepted: from 0 to below 1"),
        ("sgd", {"dampening": 1.5}, "dampening is 1.5; accepted: from 0 to 1"),
        ("sgd", {"weight_decay": -0.1}, "weight_decay is -0.1; accepted: 0 or more"),
        ("sgd", {"nesterov": True}, "nesterov is true; accepted: only with momentum above 0 and dampening 0"),
        ("adam", {"betas": (0.9, 1.0)}, "betas is [0.9, 1.0]; accepted: each from 0 to below 1"),
        ("adamw", {"eps": -1e-9}, "eps is -1e-09; accepted: 0 or more"),
        ("adagrad", {"lr_decay": -1.0}, "lr_decay is -1; accepted: 0 or more"),
        ("adagrad", {"initial_accumulator_value": -1.0}, "initial_accumulator_value is -1; accepted: 0 or more"),
        ("rmsprop", {"alpha": 1.0}, "alpha is 1; accepted: from 0 to below 1"),
        ("adadelta", {"rho": -0.1}, "rho is -0.1; accepted: from 0 to below 1"),
        ("adadelta", {"eps": 0.0}, "eps is 0; accepted: above 0"),
        ("adafactor", {"beta2_decay": 0.1}, "beta2_decay is 0.1; accepted: 0 or less"),
        ("adafactor", {"eps": (-1.0, 0.1)}, "eps is [-1.0, 0.1]; accepted: each 0 or more"),
        ("adafactor", {"d": 0.5}, "d is 0.5; accepted: 1 or more"),
        ("adamax", {"betas": (1.0, 0.9)}, "betas is [1.0, 0.9]; accepted: each from 0 to below 1"),
        ("asgd", {"t0": -1.0}, "t0 is -1; accepted: 0 or more"),
        ("lamb", {"eps": -1.0}, "eps is -1; accepted: 0 or more"),
        ("lars", {"trust": 0.0}, "trust is 0; accepted: above 0"),
        ("lars", {"momentum": 1.0}, "momentum is 1; accepted: from 0 to below 1"),
        ("muon", {"ns_steps": 0}, "ns_steps is 0; accepted: from 1 to 99"),
        ("nadam", {"momentum_decay": -1.0}, "momentum_decay is -1; accepted: 0 or more"),
        ("radam", {"lr": -1.0}, "lr is -1; accepted: above 0"),
        ("signum", {"momentum": 1.0}, "momentum is 1; accepted: from 0 to below 1"),
        ("conservative", {"gamma": -1.0}, "gamma is -1; accepted: 0 or more"),
        (
            "conservative",
            {"steps": 1},
            "steps is 1; accepted: a whole number, 2 or more: the first has no distance yet",
        ),
        (
            "conservative",
            {"of": ROOM.load("lars")()},
            "of is lars; accepted: one that updates each value by itself, as sgd or adam",
        ),
        (
            "conservative",
            {"of": ROOM.load("sgd")(lr=0.5)},
            "of.lr is 0.5; accepted: lr, which is that of sgd",
        ),
        ("rprop", {"etas": (1.2, 0.5)}, "etas is [1.2, 0.5]; accepted: one from above 0 to below 1, and one above 1"),
        ("rprop", {"step_sizes": (2.0, 1.0)}, "step_sizes is [2.0, 1.0]; accepted: two above 0, the smaller first"),
    ],
)
def test_what_is_out_of_range_is_refused(name, settings, sentence):
    with pytest.raises(SettingError) as caught:
        ROOM.load(name)(**settings)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_every_lr_that_torch_takes_of_a_good_one_is_taken(name):
    assert asdict(ROOM.load(name)(lr=1e-9))["lr"] == 1e-9


@pytest.mark.parametrize(("name", "settings"), [one for one in CASES + OURS if one[0] != "lbfgs"], ids=str)
def test_what_an_optimiser_keeps_is_what_is_said_of_its_memory(name, settings):
    own = [torch.nn.Parameter(torch.zeros(32, 32))]
    rule = ROOM.load(name)(**settings)
    optimizer = rule.build(own)
    steps(optimizer, own, 1)
    kept = sum(value.numel() for value in optimizer.state[own[0]].values() if torch.is_tensor(value))
    assert kept // 1024 == rule.kept
