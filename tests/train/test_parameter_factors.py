"""Factors of rate and decay by parameter: as torch's groups, on workers, on servers, and in shards."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from train._served import served
from train._training import session, trained
from train.test_served import assert_equal, over
from volary.errors import SettingError
from volary.session import Session
from volary.session.spec import Strategy
from volary.sharding.ranges import Range
from volary.train.model import build_model, update_rule
from volary.train.update.optimizer_rule import SliceOptimizer

FACTORS = [{"match": "*bias", "lr": 2, "weight_decay": 0}, {"match": "layers.4.*", "lr": 0.5}]
SGD = {"name": "sgd", "lr": 0.2, "momentum": 0.9, "weight_decay": 0.01}
RULES = {"sgd": SGD, "caffe_sgd": {**SGD, "name": "caffe_sgd"}, "adam": {"name": "adam", "weight_decay": 0.01}}


def of(optimizer: str = "sgd", *, factors=FACTORS, **more) -> Session:
    schedule = {"name": "step", "every": 7, "gamma": 0.5}
    train = {"steps": 20, "parameters": factors}
    return session("Exact", optimizer=RULES[optimizer], schedule=schedule, train=train, **more)


def test_steps_equal_those_of_torch_s_groups_that_are_written_by_hand():
    names = ["layers.0.weight", "layers.0.bias", "layers.4.weight", "layers.4.bias"]
    mine, theirs = ([torch.nn.Parameter(torch.ones(4) * (one + 1)) for one in range(4)] for _ in range(2))
    parts = {Range(name, 0, 4): one.data for name, one in zip(names, mine, strict=True)}
    factors = build_model(of(), torch.device("cpu")).factors
    rule = SliceOptimizer(parts, update_rule(of(), factors)[0](names), True, None)
    groups = [
        {"params": [theirs[0]], "lr": 0.2, "weight_decay": 0.01},
        {"params": [theirs[1], theirs[3]], "lr": 0.4, "weight_decay": 0.0},
        {"params": [theirs[2]], "lr": 0.1, "weight_decay": 0.01},
    ]
    plain = torch.optim.SGD(groups, momentum=0.9)
    for step in range(8):
        torch.manual_seed(step)
        gradients = [torch.randn(4) for _ in names]
        rule.take(gradients)
        rule.step(0.5**step)
        for one, gradient in zip(theirs, gradients, strict=True):
            one.grad = gradient
        for group, lr in zip(plain.param_groups, (0.2, 0.4, 0.1), strict=True):
            group["lr"] = lr * 0.5**step
        plain.step()
    torch.testing.assert_close(mine, theirs)


def replicated(rank: int, world_size: int, rules: tuple[str, ...]):
    found = {}
    for rule in rules:
        for partition in ("data", "sharded"):
            one = replace(of(rule), strategy=Strategy(workers=world_size, partition=partition))
            found[rule, partition] = trained(rank, world_size, one, f"{rule}-{partition}").parameters
    return found


def on_servers(rank: int, world_size: int, rules: tuple[str, ...]):
    return {rule: served(rank, world_size, over(of(rule), 2, world_size - 2), rule) for rule in rules}


def test_two_workers_equal_one_with_parameters_replicated_and_sharded(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = workers(2, replicated, tuple(RULES))[0]
    for rule in RULES:
        alone = trained(0, 1, of(rule), f"alone-{rule}")
        for partition in ("data", "sharded"):
            assert_equal(found[rule, partition], alone, f"{rule}, {partition}")


@pytest.mark.slow  # over all-reduce above
def test_two_workers_over_two_servers_equal_one(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = workers(4, on_servers, ("sgd", "caffe_sgd"))[0]
    for rule, kept in found.items():
        assert_equal(kept.parameters, trained(0, 1, of(rule), f"alone-{rule}"), rule)


VECTORS = [{"match": "vectors", "lr": 2, "weight_decay": 0}, FACTORS[1]]


def in_parts(rank: int, world_size: int, partitions):
    found = {}
    for name, partition in partitions.items():
        one = replace(of(factors=VECTORS), strategy=Strategy(workers=world_size, partition=partition))
        found[name] = trained(rank, world_size, one, name).parameters
    return found


def test_vectors_are_all_biases_whoever_holds_them(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    partitions = {name: {"name": "sharded", "level": level} for name, level in (("shares", 2), ("gathered", 3))}
    alone = trained(0, 1, of(), "alone")
    assert_equal(trained(0, 1, of(factors=VECTORS), "word").parameters, alone, "one worker")
    for name, kept in workers(2, in_parts, partitions)[0].items():
        assert_equal(kept, alone, name)


@pytest.mark.slow  # who knows the network is asked as above
def test_vectors_are_all_biases_on_servers_too(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = workers(4, on_servers_by_word)[0]
    assert_equal(kept.parameters, trained(0, 1, of(), "alone"), "servers")


def on_servers_by_word(rank: int, world_size: int):
    return served(rank, world_size, over(of(factors=VECTORS), 2, world_size - 2), "word")


def test_a_rate_of_0_leaves_parameters_as_they_are_and_the_first_pattern_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frozen = of(factors=[{"match": "layers.0.*", "lr": 0}, {"match": "layers.*", "lr": 1}])
    torch.manual_seed(frozen.train.seed)
    begun = dict(build_model(frozen, torch.device("cpu")).module.named_parameters())
    ended = trained(0, 1, frozen).parameters
    still = {name for name, values in ended.items() if torch.equal(values, begun[name])}
    assert still == {"layers.0.weight", "layers.0.bias", "unused.weight", "unused.bias"}


def test_a_pattern_that_fits_no_parameter_and_a_negative_factor_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, near in (("layer.*", "layers.*"), ("bias*", "*.bias"), ("vector", "vectors")):
        sentence = f"match is '{wrong}', which fits no parameter; did you mean '{near}'? accepted: a pattern"
        with pytest.raises(SettingError, match=re.escape(sentence)):
            build_model(of(factors=[{"match": wrong}]), torch.device("cpu"))
    with pytest.raises(SettingError, match=r"train.parameters.lr: is -1; accepted: 0 or more"):
        of(factors=[{"match": "*", "lr": -1}])
