"""Refusals before a run directory is made, and code of the user's own that a run takes by name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from volary.driver.ending import NoWatcher
from volary.driver.start import start
from volary.driver.tasks.task import create
from volary.engine import local
from volary.errors import BadInput, DataError, RunError, SettingError
from volary.run.database.reader import RunReader
from volary.session import Session

OWN = """
import torch

def loss(output, target):
    return 2 * torch.nn.functional.cross_entropy(output, target)

def rule(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr)
"""


def session(**settings):
    source = settings.pop("source", {"name": "synthetic", "shape": [4], "classes": 3, "samples": 20})
    return Session(
        network=settings.pop("network", "softmax"),
        data={"source": source, "batch_size": 8},
        **{"train": {"steps": 2}, "evaluate": {"every": "never"}, "run": {"name": "it"}, **settings},
    )


def test_a_run_without_a_name_is_called_after_network_and_data():
    source = {"name": "synthetic", "shape": [3, 8, 8], "classes": 3, "samples": 20}
    made = [create(session(network=one, source=source, run={"name": None})).name for one in ("lenet", "resnet18")]
    assert made == ["lenet-synthetic-1", "resnet18-synthetic-1"]


def test_more_workers_than_samples_are_refused_and_no_run_is_made():
    few = {"name": "synthetic", "shape": [4], "samples": 3}
    with pytest.raises(SettingError, match=r"strategy.workers is 4, more than the 3 samples of the training data"):
        start(session(source=few, strategy={"workers": 4}), NoWatcher())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("digits", "softmax-digits"),
        ({"name": "idx", "folder": "data/Fashion MNIST"}, "softmax-fashion-mnist"),
        ({"name": "images", "folder": "/data/cifar10.v2/"}, "softmax-cifar10-v2"),
        ({"name": "text", "path": "tiny.shakespeare.txt"}, "softmax-tiny-shakespeare"),
        ({"name": "idx", "folder": "/"}, "softmax-idx"),
        ("mine.py:Faces", "softmax-faces"),
        ({"name": "mine.py:Faces", "folder": "data/lfw"}, "softmax-lfw"),
    ],
)
def test_a_run_is_called_by_its_network_and_its_data(source, name):
    assert create(session(source=source, run={})).name == f"{name}-1"


def test_a_missing_data_folder_is_refused_and_no_run_is_made():
    with pytest.raises((DataError, SettingError), match=r"nowhere: there is no such folder"):
        start(session(source={"name": "idx", "folder": "nowhere"}), NoWatcher())
    assert not Path("runs").exists()


@pytest.mark.slow  # a run more
def test_a_loss_and_an_optimiser_of_the_user_s_own_train_and_their_run_is_not_overwritten():
    Path("mine.py").write_text(OWN)
    own = session(loss="mine.py:loss", optimizer={"name": "mine.py:rule", "lr": 0.5})
    assert start(own, NoWatcher()).step == 2
    with pytest.raises(RunError, match=r"the run runs/it exists already"):
        start(own, NoWatcher())


NET = """
from torch import nn

class Net(nn.Linear):
    def __init__(self, classes):
        super().__init__(4, classes)

class Unmade(Net):
    def __init__(self, classes):
        raise ValueError("no such width")

class Raising(Net):
    def forward(self, x):
        raise ValueError("no such shape")

class Mapping(Net):
    def forward(self, x):
        return {"scores": super().forward(x)}
"""


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        pytest.param(
            {"network": "mine.py:Unmade"},
            r"'mine.py:Unmade' raised ValueError at .*mine.py:10 in __init__: no such",
            marks=pytest.mark.slow,  # found where the next is; what is said of it: tests/cli/test_check.py
        ),
        pytest.param(
            {"network": "mine.py:Raising"},
            r"'mine.py:Raising' raised ValueError at .*mine.py:14 in forward, given",
            marks=pytest.mark.slow,  # the next but one has it over servers
        ),
        (
            {"network": "mine.py:Mapping", "strategy": {"workers": 2}},
            "gives an object of type dict; cross_entropy takes",
        ),
        (
            {"network": "mine.py:Raising", "strategy": {"workers": 2, "exchange": "server"}},
            r"raised ValueError at .*mine.py:14 in forward",
        ),
        pytest.param(
            {"train": {"steps": 2, "precision": "fp16"}},
            "fp16 needs a CUDA device",
            marks=pytest.mark.slow,  # likewise
        ),
        pytest.param({"loss": "mse"}, "mse takes the shape of the data's targets", marks=pytest.mark.slow),  # likewise
    ],
)
def test_what_two_samples_do_not_pass_is_refused_as_check_does_and_leaves_no_run(settings, sentence, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    Path("mine.py").write_text(NET)
    with pytest.raises(BadInput, match=sentence) as refused:
        start(session(**settings), NoWatcher())
    assert not list(Path("runs").iterdir()), "a refused run leaves its name free"
    removed = r"runs/[\w-]+ was removed, as nothing was trained in it"
    assert re.search(removed, refused.value.report)


def test_warnings_are_events_of_the_run_from_driver_and_worker_alike(monkeypatch):
    one = local.cores_here()[:1]
    monkeypatch.setattr(local, "cores_here", lambda: one)
    many = {"name": "synthetic", "shape": [4], "classes": 3, "samples": 6}
    ending = start(session(source=many, strategy={"workers": 2}, schedule={"name": "cosine", "warmup": 9}), NoWatcher())
    with RunReader(ending.directory) as reader:
        texts = [event.data["text"] for event in reader.events() if event.kind == "warning"]
    assert [text.partition(" is ")[0] for text in texts] == ["strategy.workers", "data.batch_size", "schedule.warmup"]


class Followed(NoWatcher):
    """A `Watcher` that remembers what it was told."""

    def __init__(self):
        self.told = []

    def started(self, directory):
        self.told.append("started")

    def ended(self, state=None, step=None):
        self.told.append(f"{state} after step {step}")


@pytest.mark.slow  # two starts of servers and workers
def test_a_run_over_servers_goes_on_after_a_thaw_and_is_one_run_to_who_looks_on():
    train = {"steps": 4, "freeze": [{"match": "*weight", "until": "2 steps"}]}
    followed = Followed()
    ending = start(session(train=train, strategy={"workers": 2, "exchange": "server"}), followed)
    assert (ending.state, ending.step) == ("finished", 4)
    assert followed.told == ["started", "started", "finished after step 4"]
    with RunReader(ending.directory) as reader:
        kinds = [event.kind for event in reader.events()]
        assert (reader.state(), reader.last_step()) == ("finished", 4)
    assert kinds.count("thawed") == 1
    assert not {"stopped", "failed"} & set(kinds)
