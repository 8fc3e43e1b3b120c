from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from monitor._made_runs import new_run
from volary.cli._main import cli


def completed(*words: str) -> list[str]:
    *before, incomplete = words
    found = ShellComplete(cli, {}, "volary", "_VOLARY_COMPLETE").get_completions(before, incomplete)
    return [item.value for item in found]


def test_verbs_are_completed():
    assert completed("re") == ["resume"]
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


def test_options_are_completed():
    assert completed("export", "--check") == ["--checkpoint"]


def test_the_group_is_an_ordinary_click_group():
    assert isinstance(cli, click.Group)
