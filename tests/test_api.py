"""Volary from Python: sessions that train themselves, and `launch` for a loop of one's own."""

from __future__ import annotations

import argparse
import functools
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import volary
from train import _own_loops
from train.test_own_loop import call
from volary import Session
from volary.errors import BadInput, SettingError, WorkerFailed
from volary.run.directory import RunDirectory

LOOPS = Path(_own_loops.__file__)


def launch(loop: str, workers: int = 2, **more: Any) -> volary.Result:
    return volary.launch(f"{LOOPS}:{loop}", workers=workers, show=False, **more)


def test_a_session_trains_itself_and_gives_metrics_and_the_trained_module():
    session = Session(
        network="softmax",
        data={"source": {"name": "synthetic", "shape": [6], "classes": 3, "samples": 60, "kind": "blobs"}},
        train={"steps": 12},
        evaluate={"every": "6 steps"},
        strategy={"workers": 2},
    )
    result = session.train(show=False)
    assert (result.state, result.steps, result.directory.path.parent.name) == ("finished", 12, "runs")
    assert {"loss", "accuracy"} <= set(result.metrics)
    assert [step for step, _ in result.metrics["loss"]] == [6, 12]
    assert not result.module.training
    source: Any = session.data.source
    inputs, targets = source.open("test").fetch(torch.arange(12))
    loss = torch.nn.functional.cross_entropy(result.module(inputs), targets)
    assert loss.item() == pytest.approx(result.metrics["loss"][-1][1], abs=1e-5)


def test_the_trained_network_is_there_when_the_data_is_gone(tmp_path):
    values, targets = np.random.default_rng(1).random((20, 6), dtype=np.float32), np.arange(20) % 3
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", inputs=values, targets=targets)
    result = Session(
        network="softmax",
        data={"source": {"name": "arrays", "folder": str(tmp_path)}, "batch_size": 5},
        train={"steps": 2},
        evaluate={"every": "2 steps"},
    ).train(show=False)
    for part in ("train", "test"):
        (tmp_path / f"{part}.npz").unlink()
    loss = torch.nn.functional.cross_entropy(result.module(torch.from_numpy(values)), torch.from_numpy(targets))
    assert loss.item() == pytest.approx(result.metrics["loss"][-1][1], abs=1e-5)


def test_a_result_shows_itself_in_a_line():
    steps = [(step, 1 / step) for step in range(1, 1001)]
    result = volary.Result(RunDirectory("runs/mine"), "finished", 1000, {"loss": steps, "accuracy": [(9, 0.98765)]})
    assert repr(result) == "<volary.Result mine: finished after 1000 steps, loss 0.001, accuracy 0.9877>"
    many = volary.Result(result.directory, "stopped", 0, {f"metric_{number}": steps for number in range(100)})
    assert len(repr(many)) < 200


def test_two_launched_workers_equal_one_and_their_values_come_back():
    both = launch("plain", 2, name="both")
    assert (both.state, both.steps, both.directory.name) == ("finished", 24, "both")
    assert len(both.values) == 2
    alone, _ = call(_own_loops.plain, 0, 1, 0)
    for name, tensor in alone["state"].items():
        for value in both.values:
            torch.testing.assert_close(value["state"][name], tensor, rtol=0, atol=1e-12)


@pytest.mark.slow  # tests/train/test_own_loop.py hands back values, too
def test_values_of_any_plain_kind_and_the_metrics_of_rank_0_come_back():
    result = launch("recording")
    assert [value["rank"] for value in result.values] == [0, 1]
    assert result.values[1]["text"] == ["a", (1, 2.5, None)]
    assert result.values[1]["tensor"].tolist() == [0, 1, 2]
    assert result.metrics == {"accuracy": [(0, 0.5)], "loss": [(0, 2.0)]}


@pytest.mark.slow  # tests/train/test_own_loop.py hands back values, too
def test_a_value_that_could_run_code_when_it_is_read_is_refused():
    with pytest.raises(BadInput, match=r"returned a Sequential; accepted: tensors, numbers, text.*state_dict"):
        launch("returning_a_module", 1)


def outer() -> Any:
    def train(worker: Any) -> None:
        """Cannot be imported."""

    return train


def test_a_keyword_that_launch_does_not_know_is_a_type_error_as_of_any_function():
    with pytest.raises(TypeError, match=r"launch\(\) got an unexpected keyword argument 'worker'"):
        launch("plain", worker=2)
    assert not Path("runs").exists()


@pytest.mark.parametrize("function", [lambda worker: None, outer(), functools.partial(outer(), 2), print, "nonsense"])
def test_what_a_worker_could_not_import_is_refused_before_anything_starts(function):
    with pytest.raises((BadInput, SettingError)) as refused:
        volary.launch(function, workers=2, show=False)
    assert "\n" not in str(refused.value)
    assert "accepted: " in str(refused.value)
    assert not Path("runs").exists()


@pytest.mark.slow  # tests/cli/test_launch.py has a program's arguments
def test_arguments_reach_the_function_and_those_that_it_does_not_take_are_refused():
    settings = argparse.Namespace(width=3, name="a")
    start = torch.arange(2)
    result = volary.launch(
        functools.partial(_own_loops.given, settings, rate=0.5), args=(start,), kwargs={"more": [1, None]}, show=False
    )
    assert result.values == [[3, "a", [0, 1], 0.5, [1, None]]]
    with pytest.raises(BadInput, match=r"given\(worker, ...\): missing a required argument: 'start'"):
        volary.launch(_own_loops.given, args=(settings,), show=False)
    with pytest.raises(BadInput, match=r"argument 1\['net'\] is a Linear; accepted: tensors, numbers, text"):
        volary.launch(_own_loops.given, args=(settings, {"net": torch.nn.Linear(1, 1)}), show=False)
    assert len(list(Path("runs").iterdir())) == 1


NOTEBOOK = '''
import linecache
import sys
import volary


def cell(number, text):
    """Run a cell as a notebook's kernel does."""
    file = f"ipykernel_1/{number}.py"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    exec(compile(text, file, "exec"), vars(sys.modules["__main__"]))


cell(1, "import math\\nfrom torch import nn\\nWIDTH = 3\\n")
cell(2, "class Net(nn.Linear):\\n    def size(self):\\n        return WIDTH\\n")
cell(3, "def twice(x):\\n    return 2 * x\\n")
cell(4, "def train(worker, add):\\n    return [worker.rank, twice(Net(WIDTH, 1).size()) + add, math.pi]\\n")
print(volary.launch(train, workers=2, args=(1,), show=False).values)
'''


@pytest.mark.slow  # two interpreters that import torch
def test_a_function_of_a_notebook_travels_as_source():
    said = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, timeout=300)
    assert (said.stdout, said.stderr) == (f"[[0, 7, {math.pi}], [1, 7, {math.pi}]]\n", "")


def script(guard: str) -> subprocess.CompletedProcess[str]:
    Path("mine.py").write_text(
        f"import sys\nimport volary\n\n\ndef train(worker):\n    return [worker.rank, sys.argv[1:]]\n\n\n{guard}"
    )
    return subprocess.run([sys.executable, "mine.py", "--width", "3"], capture_output=True, text=True, timeout=300)


@pytest.mark.slow  # two interpreters import torch
def test_a_function_of_a_script_is_launched_and_workers_see_its_arguments():
    said = script('if __name__ == "__main__":\n    print(volary.launch(train, workers=2, show=False).values)\n')
    assert (said.stdout, said.stderr) == ("[[0, ['--width', '3']], [1, ['--width', '3']]]\n", "")


@pytest.mark.slow  # an interpreter that imports torch
def test_a_script_without_a_main_guard_is_told_so_in_one_sentence():
    said = script("volary.launch(train, workers=2, show=False)\n")
    last = said.stderr.strip().splitlines()
    assert said.returncode != 0
    sentence = [line for line in last if "put it under `if __name__" in line]
    assert len(sentence) == 1, said.stderr


@pytest.mark.slow  # tests/faults/test_raised.py has errors of workers
def test_an_error_in_the_function_is_told_with_rank_and_traceback():
    with pytest.raises(WorkerFailed) as failed:
        launch("failing")
    text = str(failed.value)
    assert re.match(r"\S+_own_loops.py:\d+ in failing: ZeroDivisionError: division by zero\n  rank 0 \(host ", text)
    assert "1 other rank ended with the same error" in text
    assert "resume" not in failed.value.report, "a loop of one's own keeps its own state"
