"""Parts of a source that comes as one, by shares and by folds: disjoint, whole, the same everywhere, stratified."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from volary.data.choosing.division import numbers_of, sizes
from volary.data.memory import InMemory
from volary.errors import DataError, SettingError
from volary.session import Data, Session
from volary.train.data.opening import open_data
from volary.train.model import build_model


def of_classes(counts: list[int]) -> InMemory:
    """Make so many samples of each class, class by class; the input is the number of the sample."""
    targets = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return InMemory(torch.arange(len(targets), dtype=torch.float32).unsqueeze(1), targets, len(counts))


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(8, 60), min_size=1, max_size=5),
    test=st.sampled_from([0.0, 0.2, 0.25]),
    folds=st.integers(2, 5),
    seed=st.integers(0, 2**40),
    stratify=st.booleans(),
)
def test_folds_and_the_test_part_have_each_sample_once_and_each_class_in_its_share(counts, test, folds, seed, stratify):
    samples, measured = of_classes(counts), []
    split = {"test": test, "seed": seed, "stratify": stratify}
    for fold in range(folds):
        data = Data(source="digits", folds=folds, fold=fold, split=split)
        parts = {part: numbers_of(samples, data, part) for part in ("train", "test")}
        assert (len(parts["train"]), len(parts["test"])) == sizes(data, len(samples))[:2]
        assert torch.equal(parts["train"], parts["train"].sort().values), "neighbours in storage stay neighbours"
        measured.append(parts["test"])
        if test:
            unseen = numbers_of(
                samples, Data(source="digits", folds=folds, split={**split, "measured": "test"}), "test"
            )
            assert torch.cat([*parts.values(), unseen]).sort().values.tolist() == list(range(len(samples)))
        if stratify:
            for part in parts.values():
                for label, count in enumerate(counts):
                    mine = int((samples.targets[part] == label).sum())
                    assert abs(mine - count * len(part) / len(samples)) <= 2
    whole = torch.cat(measured)
    assert len(whole.unique()) == len(whole) == len(samples) - round(test * len(samples))


def test_a_share_is_by_the_seed_of_the_split_and_no_other():
    samples = of_classes([50, 50])

    def validation(seed: int) -> list[int]:
        data = Data(source="digits", split={"validation": 0.25, "seed": seed})
        return numbers_of(samples, data, "test").tolist()

    assert validation(3) == validation(3) != validation(4)
    assert len(validation(3)) == 25


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"folds": 1}, "folds is 1; accepted: 2 or more"),
        ({"fold": 1}, "fold is 1, and folds is not given"),
        ({"folds": 4, "fold": 4}, "fold is 4; accepted: 0 to 3, as folds is 4"),
        ({"folds": 4, "split": {"validation": 0.1}}, "split.validation is 0.1; accepted: 0, as a fold of 4"),
        ({"split": {"stratify": True}}, "split takes no validation data; accepted: split.validation above 0, or folds"),
        ({"split": {"validation": 0.5, "test": 0.5}}, "is 0.5; accepted: less than 1 together with test"),
        ({"split": {"validation": 0.5, "measured": "test"}}, "is 0; accepted: above 0, as measured is 'test'"),
        (
            {"source": {"name": "csv", "train": "a.csv", "target": "y"}},
            "source.test is missing; accepted: it, or split",
        ),
        (
            {"source": {"name": "csv", "train": "a.csv", "test": "b.csv", "target": "y"}, "folds": 3},
            "source.test and folds are both given; accepted: one of them",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(data: dict[str, Any], says: str):
    with pytest.raises(SettingError, match=re.escape(says)):
        Data(**{"source": "digits", **data})


def test_a_part_without_samples_is_refused_before_anything_starts_and_so_is_what_has_no_parts():
    one = {"network": "lenet", "evaluate": {"every": "never"}}
    few = Session(data={"source": {"name": "synthetic", "samples": 5}, "split": {"validation": 0.01}}, **one)
    with pytest.raises(DataError, match=r"5 samples, of which .* leave none as validation data"):
        sizes(few.data, 5)
    mixed = {"name": "mix", "sources": ["digits", "digits"], "weights": [1, 2]}
    with pytest.raises(DataError, match=r"data.folds cannot divide a mix with weights"):
        open_data(Session(data={"source": mixed, "folds": 3}, **one), "train")
    Path("own.py").write_text(
        "class Numbers:\n"
        "    __len__ = lambda self: 9\n"
        "    __getitem__ = lambda self, i: (float(i), 0)\n"
        "def stream():\n    return iter([(1.0, 0)] * 3)\n"
    )
    with pytest.raises(DataError, match=r"data.split cannot divide .*, a stream"):
        open_data(Session(data={"source": "own.py:stream", "split": {"validation": 0.5}}, **one), "train")
    with pytest.raises(DataError, match="the data does not say the class of each sample"):
        open_data(Session(data={"source": "own.py:Numbers", "folds": 3, "split": {"stratify": True}}, **one), "train")
    mine = Session(data={"source": "own.py:Numbers", "split": {"validation": 1 / 3}}, **one)
    learnt, measured = (open_data(mine, part) for part in ("train", "test"))
    inputs = [part.fetch(torch.arange(len(part)))[0].view(-1).tolist() for part in (learnt, measured)]
    assert (len(inputs[0]), sorted(inputs[0] + inputs[1])) == (6, list(map(float, range(9))))


def test_columns_are_standardised_over_what_is_learnt_from_alone():
    rows = [f"{number * number},{'odd' if number % 2 else 'even'}" for number in range(40)]
    Path("all.csv").write_text("\n".join(["x,kind", *rows]) + "\n")
    source = {"name": "csv", "train": "all.csv", "target": "kind"}
    session = Session(
        network="softmax", data={"source": source, "split": {"validation": 0.25, "stratify": True}}, train={"steps": 1}
    )
    model = build_model(session, torch.device("cpu"))
    learnt, _ = model.samples.fetch(torch.arange(30))
    measured, targets = model.validation.fetch(torch.arange(10))
    assert learnt.mean().item() == pytest.approx(0, abs=1e-6)
    assert learnt.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert abs(measured.mean().item()) > 1e-3
    assert targets.bincount().tolist() == [5, 5]


def test_images_of_one_folder_have_the_transforms_of_their_part_and_their_own_names(tmp_path: Path):
    for number in range(16):
        path = tmp_path / ("ant" if number < 8 else "bee") / f"{number:02}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (6, 4), (10 * number, 0, 0)).save(path)
    source = {"name": "images", "folder": tmp_path, "train": ".", "transforms": [{"name": "resize", "size": 2}]}
    data = {"source": source, "split": {"validation": 0.25, "stratify": True}, "batch_size": 4}
    session = Session(network="lenet", data=data)
    session.check()
    learnt, measured = (open_data(session, part) for part in ("train", "test"))
    assert (len(learnt), len(measured), learnt.classes, learnt.class_names) == (12, 4, 2, ("ant", "bee"))
    assert [tuple(part.input_shape) for part in (learnt, measured)] == [(3, 2, 3), (3, 4, 6)]
    assert measured.fetch(torch.arange(4))[1].tolist() == [0, 0, 1, 1]


def test_a_sample_that_cannot_be_read_is_skipped_under_its_number_in_the_part(tmp_path: Path):
    from volary.data.skipping import Skipping

    for number in range(10):
        path = tmp_path / "a" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (10 * number, 0, 0)).save(path)
    data = {"source": {"name": "images", "folder": tmp_path, "train": "."}, "folds": 2, "batch_size": 4}
    part = open_data(Session(network="lenet", data=data), "train")
    number = int(part.numbers[2])
    (tmp_path / "a" / f"{number}.png").write_bytes(b"no picture")
    told: list[tuple[int, str]] = []
    inputs, _ = Skipping(part, lambda *one: told.append(one)).fetch(torch.arange(5))
    assert len(inputs) == 4
    ((index, reason),) = told
    assert index == 2
    assert f"{number}.png" in reason
