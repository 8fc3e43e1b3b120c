"""A sweep varies settings, and names its runs by them."""

import pytest

from volary.errors import BadInput
from volary.session import Session
from volary.session.grid import Grid
from volary.session.reading.problems import SessionError

SESSION = Session(network="lenet", data={"source": "digits"})


def members(*overrides, seeds=1, drawn=None):
    return Grid.read(overrides).members(SESSION, seeds, drawn)


def test_each_combination_is_a_run_called_by_its_values():
    assert members("optimizer.lr=0.01,1e-1", "strategy.codec=none,onebit") == {
        "lr-0.01-codec-none": {"optimizer.lr": "0.01", "strategy.codec": "none"},
        "lr-0.01-codec-onebit": {"optimizer.lr": "0.01", "strategy.codec": "onebit"},
        "lr-0.1-codec-none": {"optimizer.lr": "0.1", "strategy.codec": "none"},
        "lr-0.1-codec-onebit": {"optimizer.lr": "0.1", "strategy.codec": "onebit"},
    }


def test_seeds_begin_with_the_sessions_own():
    assert members(seeds=3) == {f"seed-{n}": {"train.seed": str(n)} for n in (1, 2, 3)}


def test_what_has_one_value_is_for_all_runs():
    grid = Grid.read(["optimizer.lr=1,2", "train.steps=7", "optimizer.betas=[0.9, 0.99]", "evaluate.every=2 steps"])
    assert list(grid.varied) == ["optimizer.lr"]
    assert list(grid.fixed) == ["train.steps=7", "optimizer.betas=[0.9, 0.99]", "evaluate.every=2 steps"]


def test_values_may_have_settings_of_their_own():
    found = members("strategy.codec={name: topk, ratio: 0.1},none")
    assert [values["strategy.codec"] for values in found.values()] == ["{name: topk, ratio: 0.1}", "none"]
    assert list(found) == ["codec-name-topk-ratio-0.1", "codec-none"]


def test_runs_whose_names_would_be_the_same_or_endless_are_numbered():
    assert list(members('run.x="a b","a/b"')) == ["run-001", "run-002"]
    assert list(members(*(f"a.setting{n}=0.123456789,2" for n in range(5))))[:1] == ["run-001"]


def test_a_value_that_is_given_twice_is_one():
    assert list(members("optimizer.lr=1,2,1")) == ["lr-1", "lr-2"]


def test_combinations_are_drawn_by_the_seed_of_ranges_and_of_lists():
    words = ("optimizer.lr=1e-4..1e-1", "train.steps=10..19", "strategy.codec=none,onebit", "optimizer.momentum=0..0.9")
    found = members(*words, drawn=200)
    assert found == members(*words, drawn=200)
    values = {name: [run[name] for run in found.values()] for name in next(iter(found.values()))}
    assert list(values) == ["optimizer.lr", "train.steps", "strategy.codec", "optimizer.momentum"]
    rates = sorted(map(float, values["optimizer.lr"]))
    assert (len(rates), rates[0] >= 1e-4, rates[-1] <= 1e-1) == (200, True, True)
    assert 1e-3 < rates[100] < 1e-2, "the middle is that of the logarithms"
    assert set(values["train.steps"]) == {str(n) for n in range(10, 20)}
    assert set(values["strategy.codec"]) == {"none", "onebit"}
    assert 0.3 < sorted(map(float, values["optimizer.momentum"]))[100] < 0.6


def test_no_more_are_drawn_than_there_are_and_each_is_repeated_with_its_seeds():
    found = members("optimizer.lr=0.1,0.2", drawn=40, seeds=2)
    assert sorted((run["optimizer.lr"], run["train.seed"]) for run in found.values()) == [
        ("0.1", "1"),
        ("0.1", "2"),
        ("0.2", "1"),
        ("0.2", "2"),
    ]


@pytest.mark.parametrize(
    ("overrides", "drawn", "sentence"),
    [
        (
            ["optimizer.lr=0.1..1"],
            None,
            r"optimizer\.lr is a range, of which values are drawn; accepted: --random 20, or",
        ),
        (
            ["optimizer.lr=1..0.1"],
            5,
            r"1\.\.0\.1 is an empty range; accepted: the least value, \.\., and a greater one",
        ),
        (
            ["optimizer.lr=0.1"],
            5,
            r"--random draws values of settings; accepted with it: optimizer\.lr=0\.001\.\.0\.1, or",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(overrides, drawn, sentence):
    with pytest.raises(BadInput, match=sentence):
        members(*overrides, drawn=drawn)


@pytest.mark.parametrize(
    ("overrides", "seeds", "sentence"),
    [
        ([], 1, r"a sweep varies something: optimizer\.lr=0\.01,0\.1, or --seeds 3"),
        (["optimizer.lr=0.1,0.1"], 1, r"optimizer\.lr is 0\.1 each time; a sweep varies something"),
        (["optimizer.lr=0.1"], 1, "a sweep varies something"),
        (["train.seed=1,2"], 3, "both vary the seed"),
        (["a.b=" + ",".join(map(str, range(1001)))], 1, "these are 1,001 runs; accepted: up to 1,000"),
    ],
)
def test_what_is_no_sweep_is_refused(overrides, seeds, sentence):
    with pytest.raises(BadInput, match=sentence):
        members(*overrides, seeds=seeds)


def test_what_is_no_setting_is_refused_as_for_training():
    with pytest.raises(SessionError, match=r"'optimizer\.lr' is not NAME=VALUE"):
        Grid.read(["optimizer.lr"])
