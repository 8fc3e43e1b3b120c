"""What is refused before a run directory is made, and code of the user's own that a run takes by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from volary.driver.ending import Unwatched
from volary.driver.start import create, start
from volary.errors import DataError, RunError, SettingError
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


def test_more_workers_than_samples_are_refused_and_no_run_is_made():
    few = {"name": "synthetic", "shape": [4], "samples": 3}
    with pytest.raises(SettingError, match=r"strategy.workers is 4, more than the 3 samples of the training data"):
        start(session(source=few, strategy={"workers": 4}), Unwatched())
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
        start(session(source={"name": "idx", "folder": "nowhere"}), Unwatched())
    assert not Path("runs").exists()


def test_a_loss_and_an_optimiser_of_the_user_s_own_train_and_their_run_is_not_overwritten():
    Path("mine.py").write_text(OWN)
    own = session(loss="mine.py:loss", optimizer={"name": "mine.py:rule", "lr": 0.5})
    assert start(own, Unwatched()).step == 2
    with pytest.raises(RunError, match=r"the run runs/it exists already"):
        start(own, Unwatched())
