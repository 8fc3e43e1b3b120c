"""Classes and columns belong to names: in the sources of a mix, in both parts, in a run and what it is given later."""

from __future__ import annotations

import io
import json
import tarfile
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.data_names import DataNames, agreeing, renumber
from volary.data.datasets.user_source import samples_of
from volary.data.preparation.packing import pack
from volary.data.sources import ROOM
from volary.data.sources.csv import CsvTable
from volary.data.sources.images import Images
from volary.data.sources.mix import Mix
from volary.data.sources.text import Text
from volary.errors import DataError, SettingError

SPLITS = ("train", "test")
Write = Callable[[Path, tuple[str, ...]], Any]


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2)).save(buffer, "PNG")
    return buffer.getvalue()


def images(folder: Path, classes: tuple[str, ...], test: tuple[str, ...] | None = None) -> Any:
    for split, names in zip(SPLITS, (classes, classes if test is None else test), strict=True):
        for name in names:
            (folder / split / name).mkdir(parents=True)
            (folder / split / name / "0.png").write_bytes(picture())
    return Images(folder=str(folder))


def packed(folder: Path, classes: tuple[str, ...]) -> Any:
    files = images(folder / "files", classes)
    for split in SPLITS:
        pack(files.open(split), folder / split, 4096, lambda _: None)
    return source("packed", folder=str(folder))


def listing(folder: Path, classes: tuple[str, ...]) -> Any:
    folder.mkdir()
    (folder / "0.png").write_bytes(picture())
    (folder / "list.txt").write_text("".join(f"0.png {name}\n" for name in classes))
    return source("list", train=str(folder / "list.txt"), test=str(folder / "list.txt"))


def shards(folder: Path, classes: tuple[str, ...]) -> Any:
    folder.mkdir()
    for split in SPLITS:
        with tarfile.open(folder / f"{split}-0.tar", "w") as tar:
            for number, name in enumerate(classes):
                for ending, content in (("png", picture()), ("cls", name.encode())):
                    member = tarfile.TarInfo(f"{number}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return source("shards", folder=str(folder))


def sounds(folder: Path, classes: tuple[str, ...]) -> Any:
    for split in SPLITS:
        for name in classes:
            (folder / split / name).mkdir(parents=True)
            with wave.open(str(folder / split / name / "0.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(np.arange(800, dtype="<i2").tobytes())
    return source("wav", folder=str(folder), rate=8000, seconds=0.1, mels=4)


def table(folder: Path, classes: tuple[str, ...], columns: str = "a,b", values: str = "1,2") -> Any:
    folder.mkdir()
    path = folder / "table.csv"
    path.write_text(f"label,{columns}\n" + "".join(f"{name},{values}\n" for name in classes))
    return CsvTable(train=str(path), test=str(path), target="label", standardise=False)


def parquet(folder: Path, classes: tuple[str, ...]) -> Any:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    folder.mkdir()
    whole = arrow.table({"label": list(classes), "a": [1.0] * len(classes), "b": [2.0] * len(classes)})
    pyarrow.parquet.write_table(whole, folder / "0.parquet")
    return source("parquet", train=str(folder), test=str(folder), inputs=("a", "b"))


def letters(folder: Path, classes: tuple[str, ...]) -> Any:
    folder.mkdir()
    (folder / "text.txt").write_text("".join(name[0] for name in classes) * 20)
    return Text(path=str(folder / "text.txt"), length=len(classes))


def source(name: str, **settings: Any) -> Any:
    return ROOM.load(name)(**settings)


WRITERS: dict[str, Write] = {
    "images": images,
    "packed": packed,
    "list": listing,
    "shards": shards,
    "wav": sounds,
    "csv": table,
    "parquet": parquet,
    "text": letters,
}
NAMED = pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in WRITERS.items()])


@NAMED
def test_sources_of_a_mix_with_other_classes_are_refused(write, tmp_path):
    first, other = write(tmp_path / "first", ("cat", "dog")), write(tmp_path / "other", ("dog", "eel"))
    with pytest.raises(DataError, match=r"^mix: source 1 has the classes d.*, e.*, source 0 c.*, d.*; accepted: the"):
        Mix(sources=(first, other)).open("train")


@NAMED
def test_a_mix_that_names_all_classes_numbers_them_so(write, tmp_path):
    first, other = write(tmp_path / "first", ("cat", "dog")), write(tmp_path / "other", ("dog", "eel"))
    short = write is letters
    mix = Mix(sources=(first, other), classes=("e", "d", "c") if short else ("eel", "dog", "cat"))
    for split in SPLITS:
        mixed = mix.open(split)
        assert (mixed.classes, mixed.class_names) == (3, mix.classes)
        if not short:
            assert mixed.fetch(torch.arange(4))[1].tolist() == [2, 1, 1, 0]
    if short:
        inputs, _ = mix.open("train").fetch(torch.tensor([0, len(first.open("train"))]))
        assert inputs.tolist() == [[2, 1], [1, 0]]


@NAMED
def test_sources_of_a_mix_with_the_same_classes_need_no_setting(write, tmp_path):
    first, other = write(tmp_path / "first", ("cat", "dog")), write(tmp_path / "other", ("dog", "cat"))
    assert Mix(sources=(first, other)).open("train").class_names[0][0] == "c"


def test_names_and_numbers_in_a_mix_are_refused(tmp_path):
    named, numbered = table(tmp_path / "named", ("cat", "dog")), table(tmp_path / "numbered", ("0", "1"))
    with pytest.raises(DataError, match=r"^mix: source 1 has the classes 0, 1, source 0 cat, dog; accepted: the same"):
        Mix(sources=(named, numbered)).open("train")
    with pytest.raises(DataError, match=r"^mix: source 1: has the class 0, which mix.classes has not; accepted: cat"):
        Mix(sources=(named, numbered), classes=("cat", "dog")).open("train")


def test_numbers_in_a_mix_are_their_own_names(tmp_path):
    folders = images(tmp_path / "folders", ("0", "1", "10", "2"))
    listed = listing(tmp_path / "listed", ("0", "1", "2"))
    with pytest.raises(DataError, match=r"^mix: source 1 has the classes 0, 1, 2, source 0 0, 1, 10, 2"):
        Mix(sources=(folders, listed)).open("train")
    mix = Mix(sources=(folders, listed), classes=("0", "1", "2", "10"))
    assert mix.open("train").fetch(torch.arange(7))[1].tolist() == [0, 1, 3, 2, 0, 1, 2]
    fewer = Mix(sources=(images(tmp_path / "fewer", ("0", "1")), listed)).open("train")
    assert (fewer.classes, fewer.fetch(torch.arange(5))[1].tolist()) == (3, [0, 1, 0, 1, 2])


def test_classes_and_numbers_to_predict_do_not_mix(tmp_path):
    classes = table(tmp_path / "classes", ("0", "1"))
    numbers = CsvTable(train=classes.train, test=classes.test, target="label", kind="number", standardise=False)
    with pytest.raises(DataError, match=r"^mix: source 1 has targets of float32 in 2 dimensions, source 0 of int64 in"):
        Mix(sources=(classes, numbers)).open("train")


def test_a_class_that_is_named_twice_is_refused():
    with pytest.raises(SettingError, match=r"^classes is a, b, a; accepted: each class once"):
        Mix(sources=("digits",), classes=("a", "b", "a"))


def test_a_pack_whose_parts_were_packed_apart_agrees_by_name(tmp_path):
    packed(tmp_path / "first", ("cat", "dog", "eel")), packed(tmp_path / "other", ("cat", "eel"))
    (tmp_path / "first" / "test").rename(tmp_path / "away")
    (tmp_path / "other" / "test").rename(tmp_path / "first" / "test")
    samples = source("packed", folder=str(tmp_path / "first")).open("test")
    assert (samples.classes, samples.fetch(torch.arange(2))[1].tolist()) == (3, [0, 2])
    (tmp_path / "away").rename(tmp_path / "other" / "test")
    with pytest.raises(DataError, match=r"/other/test: has the class dog, which .*/other/train has not; accepted: cat"):
        source("packed", folder=str(tmp_path / "other")).open("test")


def hugging_face(path: Path, names: list[str], labels: list[int]) -> None:
    """As Hugging Face's data sets write a ClassLabel."""
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    feature = {"names": names, "_type": "ClassLabel"}
    metadata = {"huggingface": json.dumps({"info": {"features": {"label": feature}}})}
    columns = {"label": labels, "a": [1.0] * len(labels)}
    pyarrow.parquet.write_table(arrow.table(columns).replace_schema_metadata(metadata), path)


def test_numbers_that_a_parquet_file_names_agree_by_name(tmp_path):
    hugging_face(tmp_path / "train.parquet", ["dog", "cat", "eel"], [0, 1, 0])
    hugging_face(tmp_path / "test.parquet", ["cat", "dog"], [0, 1, 1])
    both = {split: str(tmp_path / f"{split}.parquet") for split in SPLITS}
    table = source("parquet", **both, inputs=("a",))
    training, test = table.open("train"), table.open("test")
    assert (training.classes, training.class_names, training.targets.tolist()) == (3, ("dog", "cat", "eel"), [0, 1, 0])
    assert (test.classes, test.class_names, test.targets.tolist()) == (3, ("dog", "cat", "eel"), [1, 0, 0])
    with pytest.raises(
        DataError, match=r"^mix: source 1 has the classes ape, cat, dog, source 0 dog, cat, eel; accepte"
    ):
        Mix(sources=(table, images(tmp_path / "folders", ("ape", "cat", "dog")))).open("train")

    hugging_face(tmp_path / "test.parquet", ["cat", "yak"], [0, 1])
    with pytest.raises(
        DataError, match=r"/test.parquet: has the class yak, which .*/train.parquet has not; accepted: d"
    ):
        table.open("test")
    hugging_face(tmp_path / "test.parquet", ["cat", "dog"], [0, 2])
    with pytest.raises(
        DataError, match=r"/test.parquet: row 1: has the label '2'; accepted: 0 to 1, as in its metadata"
    ):
        table.open("test")


def test_files_of_one_part_that_name_numbers_differently_are_refused(tmp_path):
    for number, names in enumerate((["dog", "cat"], ["cat", "dog"])):
        hugging_face(tmp_path / f"{number}.parquet", names, [0, 1])
    with pytest.raises(DataError, match=r"/1.parquet: has the classes cat, dog, .*/0.parquet dog, cat; accepted: the"):
        source("parquet", train=str(tmp_path), test=str(tmp_path), inputs=("a",)).open("train")


class Own:
    """A data set of one's own that has `classes`, as torchvision's have it."""

    def __init__(self, *classes: str) -> None:
        self.classes = list(classes)

    def __len__(self) -> int:
        return len(self.classes)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(2), number


def test_parts_of_a_data_set_of_ones_own_that_number_classes_differently_are_refused():
    training, test = samples_of(Own("ape", "cat", "dog"), "own"), samples_of(Own("ape", "dog"), "own")
    names = DataNames.of(training)
    with pytest.raises(DataError) as problem:
        agreeing(test, names, "the validation data", "the training data")
    assert str(problem.value) == (
        "the validation data: numbers its classes ape, dog, the training data ape, cat, dog; accepted: the same numbers"
    )
    first = samples_of(Own("ape", "cat"), "own")
    assert agreeing(first, names, "the validation data", "the training data") is first


def test_names_are_read_back_as_they_were_kept():
    names = DataNames(("ape", "d\udcffg"), 2, ("a", "b"))
    assert (DataNames.read(names.text()), DataNames.read("")) == (names, DataNames())


def test_what_is_no_class_is_not_renumbered():
    targets = torch.tensor([[0, 1], [-100, 7]])
    assert renumber(targets, torch.tensor([3, 2])).tolist() == [[3, 2], [-100, 7]]
