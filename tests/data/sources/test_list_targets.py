"""Image lists with several labels or numbers on a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from volary.data.data_names import DataNames, agreeing
from volary.data.sources.list import ListFile
from volary.errors import DataError
from volary.session import Session
from volary.train import check_session


@pytest.fixture
def listed(tmp_path: Path):
    for name in ("a.png", "b c.png", "d.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)

    def made(kind: str, train: str, test: str | None = None) -> ListFile:
        (tmp_path / "train.txt").write_text(train)
        (tmp_path / "test.txt").write_text(test or train)
        source = ListFile(train=tmp_path / "train.txt", test=tmp_path / "test.txt", kind=kind)
        source.check()
        return source

    return made


def targets(source: ListFile, split: str = "train") -> list[list[float]]:
    samples = source.open(split)
    return samples.fetch(torch.arange(len(samples)))[1].tolist()


def test_labels_are_1_where_they_are_and_any_line_may_have_none(listed):
    source = listed("labels", "a.png dog, night\nb c.png\tcat\nd.png\n", "a.png night\n")
    assert source.open("train").class_names == ("cat", "dog", "night")
    assert targets(source) == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert targets(source, "test") == [[0, 0, 1]]
    known = DataNames(("night", "cat", "bird", "dog"), 4)
    renumbered = agreeing(source.open("train"), known, "the data", "the run")
    assert renumbered.fetch(torch.arange(1))[1].tolist() == [[1, 0, 0, 1]]
    assert renumbered.classes == 4


def test_numbers_are_as_many_on_each_line(listed):
    source = listed("numbers", "a.png 0.5 -1e2\nb c.png\t3,4\n")
    assert targets(source) == [[0.5, -100], [3, 4]]
    assert source.open("train").classes is None


@pytest.mark.parametrize(
    ("kind", "train", "says"),
    [
        ("numbers", "a.png 1 2\nd.png 1\n", "train.txt:2: has '1'; accepted: 2 numbers, as on the first line of"),
        ("numbers", "a.png 1\nd.png nan\n", "train.txt:2: number 1 is missing, or NaN"),
        ("numbers", "a.png\n", "train.txt:1: has no number; accepted: one or more numbers"),
        ("numbers", "a.png one\n", "train.txt:1: has 'one'; accepted: 1 numbers"),
        ("labels", "a.png\n", "no line has a label; accepted: a path and labels"),
        (
            "labels",
            "a.png 0 1\nd.png 0.5\n",
            "train.txt:2: has the label '0.5'; accepted: names, or whole",
        ),
    ],
)
def test_what_is_none_is_refused_with_its_line(listed, kind, train, says):
    with pytest.raises(DataError, match=re.escape(says)):
        listed(kind, train).open("train")


def test_a_label_that_training_has_not_is_refused(listed):
    with pytest.raises(DataError, match=r"test.txt:1: has the label 'cow'; accepted: one that .*train.txt has"):
        listed("labels", "a.png dog\n", "d.png cow\n").open("test")


@pytest.mark.parametrize(("kind", "loss"), [("labels", {"name": "torch.nn:BCEWithLogitsLoss"}), ("numbers", "mse")])
def test_they_train_with_a_loss_of_their_shape(listed, kind, loss):
    words = ("1 2", "0 2", "1 1") if kind == "numbers" else ("x y", "y", "")
    train = "".join(f"{name}\t{said}\n" for name, said in zip(("a.png", "b c.png", "d.png"), words, strict=True))
    source = listed(kind, train)
    network = {"name": "softmax", **({"classes": 2} if kind == "numbers" else {})}
    session = Session(
        network=network, data={"source": source, "batch_size": 2}, loss=loss, evaluate={"every": "1 epochs"}
    )
    assert check_session(session).samples == 3
