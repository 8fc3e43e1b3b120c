"""Inputs without targets are read as the validation data of the same source is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from volary.data.data_names import DataNames
from volary.data.sources.arrays import Arrays
from volary.data.sources.csv import CsvTable
from volary.data.sources.images import Images
from volary.data.sources.parquet import ParquetTable
from volary.data.sources.text import Text
from volary.data.transforms.centre_crop import CentreCrop
from volary.data.unlabelled.unlabelled import Unlabelled
from volary.errors import DataError

TABLE = "width,kind,height\n1,ant,10\n2.5,bee,\n4,ant,30\n"


def known(source: Any) -> DataNames:
    return DataNames.of(source.open("train"))


def inputs(given: Unlabelled) -> torch.Tensor:
    return given.samples.fetch(torch.arange(len(given.samples)))[0]


def same_as_validation(source: Any, given: Path) -> Unlabelled:
    validation = source.open("test")
    wanted, _ = validation.fetch(torch.arange(len(validation)))
    found = source.unlabelled(given, known(source))
    torch.testing.assert_close(inputs(found), wanted, rtol=0, atol=1e-12)
    return found


def test_a_table_is_standardised_and_filled_by_the_training_part_and_its_columns_may_be_in_any_order():
    Path("train.csv").write_text(TABLE)
    Path("test.csv").write_text("width,kind,height\n3,bee,20\n5,ant,\n")
    Path("new.csv").write_text("id,height,width\nx,20,3\ny,,5\n")
    source = CsvTable(train=Path("train.csv"), test=Path("test.csv"), target="kind", missing="mean")
    same_as_validation(source, Path("new.csv"))
    names = known(source)
    Path("train.csv").rename("elsewhere.csv")  # the run says what it needs of it
    source.unlabelled(Path("new.csv"), DataNames.read(names.text()))
    with pytest.raises(DataError, match=r"new\.csv:3: height is missing"):
        dataclasses.replace(source, missing="skip").unlabelled(Path("new.csv"), names)
    Path("narrow.csv").write_text("width\n3\n")
    with pytest.raises(DataError, match=r"narrow\.csv: has no column 'height'"):
        source.unlabelled(Path("narrow.csv"), names)


def test_columns_of_parquet_and_images_in_one_need_no_labels():
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"width": [1.0, 2.0, 4.0], "height": [10, 20, 30]}
    parquet.write_table(arrow.table(columns | {"label": ["a", "b", "a"]}), "train.parquet")
    parquet.write_table(arrow.table(columns), "new.parquet")
    same_as_validation(
        ParquetTable(train=Path("train.parquet"), test=Path("train.parquet"), inputs=("width", "height")),
        Path("new.parquet"),
    )
    Image.new("RGB", (4, 3), (9, 99, 200)).save("one.png")
    images = {"image": [Path("one.png").read_bytes()]}
    parquet.write_table(arrow.table(images | {"label": ["a"]}), "train.parquet")
    parquet.write_table(arrow.table(images), "new.parquet")
    source = ParquetTable(train=Path("train.parquet"), test=Path("train.parquet"), size=2)
    same_as_validation(source, Path("new.parquet"))
    same_as_validation(source, Path("one.png"))


def test_bytes_of_an_array_are_scaled():
    Path("data").mkdir()
    rows = np.arange(12, dtype=np.uint8).reshape(3, 4)
    for split in ("train", "test"):
        np.savez(f"data/{split}.npz", inputs=rows, targets=np.array([0, 1, 1]))
    np.save("new.npy", rows)
    np.savez("new.npz", inputs=rows)
    source = Arrays(folder=Path("data"), mean=0.5, std=0.25)
    same_as_validation(source, Path("new.npy"))
    same_as_validation(source, Path("new.npz"))
    np.save("gap.npy", np.array([[1.0], [np.nan]]))
    with pytest.raises(DataError, match=r"gap\.npy: row 1 is missing, or NaN"):
        source.unlabelled(Path("gap.npy"), DataNames())


def test_images_of_a_folder_are_prepared_as_validation_data_in_the_order_of_their_names():
    for part in ("train", "test"):
        for number, folder in enumerate(("ant", "bee")):
            path = Path("photos", part, folder)
            path.mkdir(parents=True)
            Image.new("RGB", (8, 6), (10 * number, 99, 200)).save(path / f"{number}.png")
    source = Images(folder=Path("photos"), size=6, mean=(0.5,), std=(0.2,), test_transforms=(CentreCrop(size=4),))
    found = same_as_validation(source, Path("photos/test"))
    assert [found.name(row) for row in range(2)] == ["ant/0.png", "bee/1.png"]
    with pytest.raises(DataError, match=r"train\.csv: there is no such file"):
        source.unlabelled(Path("train.csv"), DataNames())
    Path("empty").mkdir()
    with pytest.raises(DataError, match="empty: has no image in it"):
        source.unlabelled(Path("empty"), DataNames())


def test_of_a_line_of_text_the_last_symbols_are_read():
    Path("all.txt").write_text("abcabcabcabcabcabcabc\n" * 3)
    source = Text(path=Path("all.txt"), length=4)
    Path("new.txt").write_text("ab\n\nabcabc\n")
    found = source.unlabelled(Path("new.txt"), known(source))
    symbols, ends = found.samples.fetch(torch.arange(2))
    assert found.last
    assert ends.tolist() == [1, 3]
    assert symbols[0, :2].tolist() == [1, 2]  # after the line's end, which is the first of the vocabulary
    assert symbols[1].tolist() == [3, 1, 2, 3]
    Path("new.txt").write_text("ab\nabz\n")
    with pytest.raises(DataError, match=r"new\.txt:2: has 'z', which the text of the training has not"):
        source.unlabelled(Path("new.txt"), known(source))
