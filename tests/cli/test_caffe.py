"""`volary caffe`: what is shown, imported and trained of Caffe's files."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from network.caffe._nets import caffemodel, solverstate
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in EXAMPLES.glob("*.prototxt"):
        shutil.copy(file, tmp_path)


def test_show_lists_layers_shapes_and_parameters(volary):
    said = volary("caffe", "show", "digits_net.prototxt", "--shape", "1,28,28")
    assert (said.status, said.err) == (0, "")
    rows = [re.split(r"  +", line.strip()) for line in said.out.splitlines()]
    assert ["conv1", "Convolution", "data", "conv1", "16x24x24", "416"] in rows
    assert ["parameters", "23,466"] in rows
    table = json.loads(volary("caffe", "show", "digits_net.prototxt", "--shape", "1x28x28", "--json").out)
    assert table["parameters"] == 23_466
    assert table["outputs"] == ["ip1"]


def test_import_writes_code_that_runs_and_overwrites_nothing(volary):
    arguments = ["caffe", "import", "digits_net.prototxt", "-o", "net.py", "--shape", "1,28,28"]
    assert volary(*arguments).out == "wrote net.py: the class Net\n"
    names = {}
    exec(Path("net.py").read_text(), names)
    assert names["Net"]()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert (volary(*arguments).status, volary(*arguments).err) == (
        2,
        "net.py exists already; choose another with --output\n",
    )


def test_what_is_wrong_is_one_line_each_with_status_2(volary):
    text = Path("digits_net.prototxt").read_text()
    Path("bad.prototxt").write_text(text.replace('"Pooling"', '"Pooled"').replace('"ReLU"', '"Python"'))
    said = volary("caffe", "show", "bad.prototxt")
    assert said.status == 2
    assert [line.partition(":")[0] for line in said.err.splitlines()] == ["bad.prototxt"] * 2
    assert volary("caffe", "show", "digits_net.prototxt").err == (
        "digits_net.prototxt: has no shape for its input 'data'; accepted: the shape of a sample, as 3,224,224\n"
    )
    assert (
        "--shape is 'x'; accepted: sizes above 0" in volary("caffe", "show", "digits_net.prototxt", "--shape", "x").err
    )


def test_a_solver_is_printed_as_the_session_that_it_is(volary):
    said = volary("caffe", "train", "digits_solver.prototxt", "data.source=digits", "strategy.workers=3", "--dry-run")
    assert said.status == 0
    Path("session.yaml").write_text(said.out)
    found = Session.read("session.yaml")
    assert (found.data.batch_size, found.strategy.workers, found.train.steps) == (96, 3, 100)
    assert "display is ignored" in said.err


def test_a_solver_trains_and_its_checkpoint_is_evaluated(volary):
    said = volary(
        "caffe",
        "train",
        "digits_solver.prototxt",
        "data.source=digits",
        "--json",
        "train.steps=60",
        "evaluate.every=60 steps",
    )
    assert said.status == 0, said.err
    ended = json.loads(said.out)
    assert ended["state"] == "finished"
    assert ended["metrics"]["accuracy"] > 0.9
    again = volary("evaluate", ended["run"], "--json")
    assert json.loads(again.out)["metrics"]["accuracy"] == pytest.approx(ended["metrics"]["accuracy"])


@pytest.mark.slow  # tests/network/caffe/test_snapshot.py continues every kind of snapshot
def test_a_snapshot_is_continued_and_one_that_does_not_fit_leaves_no_run(volary):
    weights = [np.zeros(shape) for shape in ((16, 1, 5, 5), (16,), (10, 2304), (10,))]
    caffemodel(Path("it.caffemodel"), {"conv1": weights[:2], "ip1": weights[2:]})
    solverstate(Path("it.solverstate"), 95, "it.caffemodel", weights)
    solverstate(Path("bad.solverstate"), 95, "it.caffemodel", weights[:3])
    train = ("caffe", "train", "digits_solver.prototxt", "data.source=digits", "evaluate.every=never", "--json")
    said = volary(*train, "--snapshot", "bad.solverstate")
    assert (said.status, said.err.splitlines()[-1].partition(";")[0]) == (2, "bad.solverstate: has 3 histories")
    assert not Path("runs").exists()
    ended = json.loads(volary(*train, "--snapshot", "it.solverstate").out)
    assert (ended["state"], ended["step"]) == ("finished", 100)
    with RunReader(RunDirectory.existing(ended["run"])) as reader:
        assert [row.step for row in reader.steps()] == [96, 97, 98, 99, 100]


@pytest.mark.slow  # tests/engine has programs that torchrun starts
def test_processes_that_a_launcher_starts_join_one_run(tmp_path, fresh):
    said = fresh(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"),
        *(sys.executable, "-m", "volary", "caffe", "train", "digits_solver.prototxt"),
        *("data.source=digits", "train.steps=20", "evaluate.every=never"),
    )
    assert said.status == 0, said.err
    run = RunDirectory.existing("caffe-digits-1", tmp_path / "runs")
    with RunReader(run) as reader:
        assert set(reader.ranks()) == {0, 1}
    assert Session.read(run.session).data.batch_size == 64
