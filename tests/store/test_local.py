"""The store in this process, and what every store refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import volary.store
from volary.errors import SettingError, VolaryError

UPDATERS = Path(__file__).parent / "_updaters.py"


def test_a_push_replaces_what_is_stored_if_no_updater_is_named():
    with volary.store.local() as store:
        store.init("w", torch.ones(2, 3))
        assert torch.equal(store.pull("w"), torch.ones(2, 3))
        pushed = torch.full((2, 3), 4.0)
        store.push("w", pushed)
        pushed.zero_()
        assert torch.equal(store.pull("w"), torch.full((2, 3), 4.0))


def test_pulls_into_a_tensor_of_any_layout_give_that_tensor():
    with volary.store.local("add") as store:
        store.init(0, torch.arange(6).view(2, 3))
        out = torch.zeros(3, 2, dtype=torch.int64).t()
        assert store.pull(0, out=out) is out
        assert out.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("updater", ["function", "reference"])
def test_a_users_updater_changes_what_is_stored_in_place(updater):
    def half(key, pushed, stored):
        stored.mul_(0.5).add_(pushed)

    with volary.store.local(half if updater == "function" else f"{UPDATERS}:decay") as store:
        store.init("half", torch.full((3,), 8.0))
        store.push("half", torch.ones(3))
        store.push("half", torch.ones(3))
        assert store.pull("half").tolist() == [3.5, 3.5, 3.5]


def test_updaters_that_want_whole_tensors_see_their_shape():
    with volary.store.local(f"{UPDATERS}:shaped", whole=True) as store:
        store.init("w", torch.zeros(2, 2))
        store.push("w", torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        assert store.pull("w").tolist() == [[2.0, 3.0], [2.0, 3.0]]


def test_initial_values_are_the_first_that_come():
    with volary.store.local() as store:
        store.init("w", torch.ones(2))
        store.init("w", torch.zeros(2))
        assert store.pull("w").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (lambda store: store.pull("v"), r"key 'v': there is none; call init"),
        (lambda store: store.push("v", torch.ones(2)), r"key 'v': there is none; call init"),
        (lambda store: store.init("w", torch.ones(3)), r"key 'w': is float32 of shape \(2,\); accepted: the same"),
        (lambda store: store.push("w", torch.ones(2, 1)), r"not float32 of shape \(2, 1\)"),
        (lambda store: store.push("w", torch.ones(2).double()), r"not float64 of shape \(2,\)"),
        (lambda store: store.pull("w", out=torch.ones(1)), r"not float32 of shape \(1,\)"),
        (lambda store: store.init("v", torch.ones(0)), r"accepted: at least one value"),
        (lambda store: store.init("v", torch.ones(2).bool()), r"is of bool; accepted: float16, "),
        (lambda store: store.init("v", [1.0]), r"a list was given; accepted: a dense torch tensor"),
        (lambda store: store.init(-1, torch.ones(2)), r"key is '-1'; accepted: up to 512 letters"),
        (lambda store: store.init(1.5, torch.ones(2)), r"key is 1.5; accepted: text, or a whole number"),
    ],
)
def test_misuse_is_told_in_a_sentence_and_changes_nothing(misuse, sentence):
    with volary.store.local() as store:
        store.init("w", torch.ones(2))
        with pytest.raises(SettingError, match=sentence):
            misuse(store)
        assert store.pull("w").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("updater", "sentence"),
    [
        ("Sgdd", "updater is 'Sgdd'; accepted: 'assign', 'add', an optimiser of torch.optim"),
        ({"name": "SGD", "lr": -1}, "updater 'SGD' with {'lr': -1}: ValueError"),
        ("LBFGS", "updater 'LBFGS' with {}: TypeError"),
        ({"name": "add", "lr": 1}, "updater 'add' takes no arguments"),
        ({"lr": 1}, "accepted: a name, or a mapping"),
        ("missing.py:f", "missing.py: no such file"),
    ],
)
def test_an_updater_that_cannot_be_is_refused_before_anything_is_stored(updater, sentence):
    with pytest.raises(SettingError, match=sentence):
        volary.store.local(updater)


def test_what_an_updater_raises_is_told_with_the_key():
    with volary.store.local(f"{UPDATERS}:decay") as store:
        store.init("broken", torch.ones(2))
        with pytest.raises(VolaryError, match="failed for key 'broken': ValueError: this key is not to be updated"):
            store.push("broken", torch.ones(2))


def test_whole_numbers_are_refused_by_an_optimiser():
    with (
        volary.store.local("SGD") as store,
        pytest.raises(SettingError, match=r"is of torch.int64; accepted by updater 'SGD': floating-point types"),
    ):
        store.init("w", torch.ones(2, dtype=torch.int64))


@pytest.mark.parametrize(
    "settings",
    [
        {"workers": 0},
        {"workers": 1, "servers": 0},
        {"workers": 1, "mode": "maybe"},
        {"workers": 1, "security": "none"},
        {"workers": 1, "updater": "nowhere.at_all:f"},
        {"workers": 1, "updater": {"name": "SGD", "lr": object()}},
        {"workers": 1, "updater": "1:2"},
    ],
)
def test_a_store_that_cannot_be_is_refused_before_any_process_starts(settings):
    with pytest.raises(SettingError):
        volary.store.serve(**settings)
