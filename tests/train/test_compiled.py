"""A network that is compiled (train.compile): the same training to rounding, and the same again when it is resumed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from volary import Session
from volary.errors import SettingError
from volary.network.execution.compiled import compiled
from volary.run.directory import RunDirectory
from volary.train.afterwards import load_model

SOURCE = {"name": "synthetic", "shape": [1, 12, 12], "classes": 3, "samples": 70, "kind": "blobs"}
LAYERS: list[Any] = [{"conv": {"channels": 4, "kernel": 3}}, "relu", {"linear": {"outputs": "classes"}}]


def trained(name: str, steps: int, *, compiles: bool, **strategy: Any) -> dict[str, torch.Tensor]:
    one = Session(
        network={"layers": LAYERS},
        data={"source": SOURCE, "batch_size": 20},
        optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9},
        train={"steps": steps, "compile": compiles},
        evaluate={"every": "never"},
        strategy={"workers": 2, "startup_timeout_s": 280, **strategy},
        run={"name": name},
    )
    result = one.train(show=False)
    assert (result.state, result.steps) == ("finished", steps)
    return dict(result.module.named_parameters())


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow  # torch's compiler takes its time
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", [{}, {"exchange": "server"}], ids=["all-reduce", "servers"])
def test_compiled_code_trains_as_layers_that_run_one_by_one(strategy):
    plain = trained("plain", 9, compiles=False, **strategy)
    for name, values in trained("compiled", 9, compiles=True, **strategy).items():
        torch.testing.assert_close(values, plain[name], rtol=0, atol=1e-5)


@pytest.mark.slow  # torch's compiler takes its time
@pytest.mark.timeout(900)
def test_a_compiled_run_is_resumed_bit_for_bit_within_an_epoch():
    whole = trained("whole", 9, compiles=True)
    trained("half", 6, compiles=True)
    subprocess.run([sys.executable, "-m", "volary", "resume", "half", "train.steps=9"], check=True, timeout=400)
    resumed = load_model(RunDirectory("runs/half"), 9).module
    for name, values in resumed.named_parameters():
        assert torch.equal(values, whole[name])


def test_without_a_compiler_of_its_language_it_is_refused(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SettingError, match=r"no compiler of C\+\+ is here .*; accepted: compile=false"):
        compiled(torch.nn.Linear(2, 2), torch.device("cpu"))
