from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from monitor._made_runs import checkpoint, new_run
from volary.cli.command.main import cli
from volary.session import Choice

CODEC = Choice("volary.codec")


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    found = ShellComplete(cli, {}, "volary", "_VOLARY_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found]


def test_verbs_are_completed():
    assert completed("res") == ["resume"]
    assert "train" in completed("")
    assert "--version" in completed("--")


@pytest.mark.parametrize("verb", ["show", "resume", "evaluate", "export", "doctor"])
def test_run_names_are_completed(verb):
    new_run("lenet-1")
    new_run("lenet-2")
    new_run("vgg-1")
    assert completed(verb, "len") == ["lenet-1", "lenet-2"]


@pytest.mark.parametrize("verb", ["train", "check"])
def test_settings_are_completed(verb):
    assert completed(verb, "session.yaml", "train.ep") == ["train.epochs="]
    assert "strategy.codec=" in completed(verb, "session.yaml", "a=1", "strategy.")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("strategy.codec=on", ["strategy.codec=onebit"]),
        ("train.device=", ["train.device=auto", "train.device=cpu", "train.device=cuda"]),
        ("data.shuffle=t", ["data.shuffle=true"]),
        ("optimizer.lr=", []),
        ("train.sede=", []),
    ],
)
def test_values_are_completed(typed, offered):
    assert completed("train", "session.yaml", typed) == offered


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["strategy.codec", "=", "on"], ["onebit"]),
        (["strategy.codec", "="], CODEC.open().names()),
        (["train.epochs", "=", "3", "strategy.exchange", "=", "s"], ["server"]),
        (["train.epochs", "=", "3", "strategy.codec"], ["strategy.codec="]),
    ],
)
def test_values_are_completed_in_bash_which_takes_the_equals_sign_for_a_word(words, offered, fresh):
    line = ["volary", "train", "session.yaml", *words]
    environment = {"COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    said = fresh("-m", "volary", _VOLARY_COMPLETE="bash_complete", **environment)
    assert [answer.partition(",")[2] for answer in said.out.split()] == offered


def test_checkpoints_are_completed():
    checkpoint(new_run("a"), 23, None)
    checkpoint(new_run("b"), 46, None)
    assert completed("export", "b", "--checkpoint", "") == ["best", "last", "46"]
    assert completed("evaluate", "b", "--checkpoint", "4") == ["46"]
    assert completed("evaluate", "--checkpoint", "l") == ["last"]


def test_options_are_completed():
    assert completed("export", "--check") == ["--checkpoint"]


def test_the_group_is_an_ordinary_click_group():
    assert isinstance(cli, click.Group)
