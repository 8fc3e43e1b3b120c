"""Scripts before and after: few lines change, and two workers learn what one process learnt."""

from __future__ import annotations

import difflib
import re
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from train.test_own_loop import call
from volary.train.own.startup import init

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
PAIRS = sorted(file.parent.name for file in EXAMPLES.glob("*/plain.py"))
MOST_LINES = 8
QUICK = "gan"  # of the others each takes seconds, most of them to import what torch and transformers have


def text(name: str, which: str) -> str:
    return (EXAMPLES / name / which).read_text()


@pytest.mark.parametrize("name", PAIRS)
def test_as_few_lines_differ_as_both_files_say(name):
    plain, own = text(name, "plain.py"), text(name, "distributed.py")
    lines = difflib.ndiff(plain.splitlines(), own.splitlines())
    changed = [line for line in lines if line.startswith("+ ")]
    said = re.search(r"plain\.py and distributed\.py differ in (\d) lines\.", plain)
    assert said and said[0] in own
    assert len(changed) == int(said[1]) <= MOST_LINES, changed


def test_image_classification_with_its_command_line_takes_four_lines():
    assert "differ in 4 lines" in text("classification", "plain.py")


def run(name: str, which: str, *arguments: str) -> dict[str, Any]:
    """The state of each model that the script has in the end. In double precision, where little rounding adds up."""
    torch.set_default_dtype(torch.float64)
    sys.argv = [which, *arguments]
    found = runpy.run_path(str(EXAMPLES / name / which))
    return {
        variable: value.state_dict()
        for variable, value in found.items()
        if isinstance(value, torch.nn.Module) and value.state_dict()
    }


def before(rank: int, world_size: int, name: str, *arguments: str) -> dict[str, Any]:
    return run(name, "plain.py", *arguments)


def after(rank: int, world_size: int, name: str, *arguments: str, attempt: int = 0) -> dict[str, Any]:
    def train(worker: Any) -> dict[str, Any]:
        init._worker = None  # another run of this process's
        init.offer(lambda: worker)
        return run(name, "distributed.py", *arguments)

    return call(train, rank, world_size, attempt)[0]


def assert_equal(found: dict[str, Any], alone: dict[str, Any]) -> None:
    assert found.keys() == alone.keys()
    for model, state in alone.items():
        for where, tensor in state.items():
            torch.testing.assert_close(found[model][where], tensor, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PAIRS]
)
def test_two_workers_learn_what_the_script_learnt_before(workers, name):
    if name == "fine_tuning" and find_spec("transformers") is None:
        pytest.skip("needs transformers: pip install transformers")
    (alone,) = workers(1, before, name)
    for found in workers(2, after, name):
        assert_equal(found, alone)


def save_and_resume(rank: int, world_size: int) -> dict[str, Any]:
    after(rank, world_size, "classification", "--epochs", "2", "--save", "kept.pt", attempt=0)
    return after(rank, world_size, "classification", "--epochs", "4", "--resume", "kept.pt", attempt=1)


@pytest.mark.slow  # as above
def test_two_workers_resume_from_their_checkpoint_as_if_nothing_had_been(workers):
    (alone,) = workers(1, before, "classification", "--epochs", "4")
    for found in workers(2, save_and_resume):
        assert_equal(found, alone)
