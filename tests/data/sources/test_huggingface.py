"""Data sets of Hugging Face's library, as it saved them and as it loads them; none is downloaded."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from volary.data.sources.huggingface import HuggingFace
from volary.errors import DataError, SettingError


@pytest.fixture
def library(tmp_path, monkeypatch):
    for name in ("HF_HOME", "HF_DATASETS_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = pytest.importorskip("datasets", reason="needs the extra huggingface")
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)  # its progress bars would leave a thread
    return found


def pictures(library, count: int):
    def picture(number: int) -> bytes:
        buffer = io.BytesIO()
        Image.new("RGB", (4, 4), (10 * number, 0, 0)).save(buffer, "PNG")
        return buffer.getvalue()

    features = library.Features({"image": library.Image(), "label": library.ClassLabel(names=["bee", "ant"])})
    images = [{"bytes": picture(number), "path": None} for number in range(count)]
    return library.Dataset.from_dict({"image": images, "label": [n % 2 for n in range(count)]}, features=features)


def test_images_that_it_saved_are_read_with_the_names_of_their_classes(library, tmp_path: Path):
    parts = {"train": pictures(library, 5), "validation": pictures(library, 3)}
    library.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    source = HuggingFace(dataset=str(tmp_path / "saved"), test="validation")
    source.check()
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.tensor([4, 1]))
    assert (len(samples), samples.class_names, targets.tolist()) == (5, ("bee", "ant"), [0, 1])
    assert (255 * inputs[:, 0, 0, 0]).round().tolist() == [40, 10]
    assert len(source.open("test")) == 3
    parts["train"].save_to_disk(tmp_path / "one")
    assert len(HuggingFace(dataset=str(tmp_path / "one")).open("train")) == 5


def test_columns_are_loaded_from_files_of_a_folder(library, tmp_path: Path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "train.csv").write_text("x,y,kind\n" + "".join(f"{n},{2 * n},{n % 3}\n" for n in range(6)))
    source = HuggingFace(dataset=str(tmp_path / "table"), inputs=("x", "y"), target="kind")
    samples = source.open("train")
    inputs, targets = samples.fetch(torch.tensor([2, 5]))
    assert (inputs.tolist(), targets.tolist(), samples.columns) == ([[2, 4], [5, 10]], [2, 2], ("x", "y"))
    with pytest.raises(DataError, match=r"its part test cannot be loaded .*accepted: a data set that"):
        source.open("test")
    with pytest.raises(DataError, match="has no column 'z'; it has x, y, kind"):
        HuggingFace(dataset=str(tmp_path / "table"), inputs=("z",), target="kind").open("train")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SettingError, match=r"datasets is not installed; accepted: pip install 'volary\[huggingface\]'"):
        HuggingFace(dataset="any").open("train")
    with pytest.raises(SettingError, match="dataset, train or test is empty"):
        HuggingFace(dataset="")
