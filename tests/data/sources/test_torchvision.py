"""Data sets of torchvision: a module of its form everywhere, the package itself where it is. Nothing is downloaded."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from train._training import trained
from volary.data.sources.torchvision import Torchvision
from volary.errors import DataError, SettingError
from volary.session import Session

LIKE_TORCHVISION = '''
from pathlib import Path

import numpy as np
from PIL import Image

__all__ = ["Grey", "Letters", "Found", "Boxes", "Read", "read"]


def read(path):
    return path


class Grey:
    """As MNIST: `train` is a flag, `targets` an array, `classes` their names."""

    classes = ["bee", "ant", "cat"]

    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):
        if download:
            Path(root, "grey").touch()
        if not Path(root, "grey").exists():
            raise RuntimeError("Dataset not found. You can use download=True to download it")
        self.count = 6 if train else 4
        self.targets = np.arange(self.count) % 3

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Image.new("L", (4, 3), 10 * index), int(index % 3)


class Letters(Grey):
    """As EMNIST: what it hands on is named nowhere, and `split` is no part."""

    def __init__(self, root, split, **kwargs):
        super().__init__(root, **kwargs)
        self.targets = [number % 3 for number in range(self.count)]
        self.classes = [f"{split}{number}" for number in range(3)]


class Found:
    """As Flowers102: parts have names, classes have none, and are private."""

    def __init__(self, root, split="train"):
        self._labels = {"train": [0, 4, 2], "val": [1]}[split]

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        return Image.new("RGBA", (4, 4), (index, 0, 0, 255)), self._labels[index]


class Boxes(Found):
    def __getitem__(self, index):
        return super().__getitem__(index)[0], {"boxes": []}


class Read:
    """As Caltech's: one part, and nothing says which classes there are but the samples."""

    def __init__(self, root, target_transform=None):
        self.labels = [9, 9]  # of something else

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return Image.new("RGB", (4, 4), (0, 10 * index, 0)), np.int64(index)
'''


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for data sets of a module of torchvision's form."""
    package = tmp_path / "packages" / "torchvision"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "datasets.py").write_text(LIKE_TORCHVISION)
    known = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "torchvision"}
    for name in known:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(package.parent))
    (tmp_path / "data").mkdir()
    yield tmp_path / "data"
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.modules.update(known)


def source(root: Path, dataset: str, **settings: Any) -> Torchvision:
    return Torchvision(dataset=dataset, root=str(root), **settings)


def first_values(samples: Any) -> list[int]:
    inputs, _ = samples.fetch(torch.arange(len(samples)))
    return [round(255 * float(one)) for one in inputs.flatten(1).max(1).values]


def test_parts_by_a_flag_have_images_targets_and_the_names_of_classes(root: Path) -> None:
    (root / "grey").touch()
    grey = source(root, "Grey", channels=1)
    grey.check()
    train, test = grey.open("train"), grey.open("test")
    assert (len(train), len(test), train.input_shape, train.classes) == (6, 4, (1, 3, 4), 3)
    assert train.class_names == test.class_names == ("bee", "ant", "cat")
    assert train.fetch(torch.tensor([4, 2]))[1].tolist() == [1, 2]
    assert first_values(train) == [0, 10, 20, 30, 40, 50]
    sized = source(root, "Grey", size=6, mean=(0.5,), std=(0.5,)).open("train")
    assert sized.fetch(torch.tensor([0]))[0].shape == (1, 3, 6, 6)
    assert float(sized.fetch(torch.tensor([0]))[0].min()) == -1


def test_arguments_reach_the_class_and_what_it_hands_on(root: Path) -> None:
    (root / "grey").touch()
    letters = source(root, "Letters", arguments={"split": "byclass"})
    assert (len(letters.open("test")), letters.open("train").class_names[0]) == (4, "byclass0")
    with pytest.raises(DataError, match=r"cannot be opened .*missing 1 required positional argument: 'split'"):
        source(root, "Letters").open("train")


def test_parts_by_name_and_classes_without_names_are_of_the_training_part(root: Path) -> None:
    found = source(root, "Found", test="val")
    train, test = found.open("train"), found.open("test")
    assert (train.classes, test.classes, train.class_names) == (5, 5, ())
    assert (train.fetch(torch.arange(3))[1].tolist(), test.fetch(torch.arange(1))[1].tolist()) == ([0, 4, 2], [1])
    assert first_values(train) == [0, 1, 2]
    with pytest.raises(DataError, match=r"torchvision's Found: cannot be opened in .* \('test'\); accepted: its files"):
        source(root, "Found").open("test")


def test_classes_that_only_the_samples_have_are_read_from_them_and_one_part_is_divided(root: Path) -> None:
    read = source(root, "Read")
    assert read.open("train").fetch(torch.arange(3))[1].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match=r"torchvision's Read: has one part; accepted: data\.split"):
        read.open("test")


def test_nothing_is_downloaded_unless_a_setting_asks_for_it(root: Path) -> None:
    with pytest.raises(DataError, match=r"Grey: cannot be opened .*Dataset not found.*; .*the setting download=true"):
        source(root, "Grey").open("train")
    assert list(root.iterdir()) == []
    assert len(source(root / "new", "Grey", download=True).open("train")) == 6
    assert (root / "new" / "grey").exists()
    with pytest.raises(
        SettingError, match="download is true, and torchvision's Found is not downloaded by torchvision"
    ):
        source(root, "Found", download=True).open("train")


def test_what_is_no_data_set_of_images_with_a_class_is_refused(root: Path) -> None:
    with pytest.raises(DataError, match=r"sample 0 is \(Image, dict\); accepted: a data set of images with a class"):
        source(root, "Boxes").open("train")
    with pytest.raises(SettingError, match=r"dataset 'Gray': unknown; did you mean 'Grey'\? Known: Grey, Letters, Fo"):
        source(root, "Gray").open("train")
    with pytest.raises(SettingError, match="arguments is no mapping"):
        source(root, "Grey", arguments=["letters"])
    with pytest.raises(SettingError, match="root is empty"):
        Torchvision(dataset="Grey", root="")


def test_without_the_package_or_the_folder_a_check_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"nowhere: .*accepted: the folder that torchvision has Grey in"):
        source(root / "nowhere", "Grey").check()
    monkeypatch.setattr("volary.data.sources.torchvision.find_spec", lambda _: None)
    with pytest.raises(SettingError, match=r"torchvision is not installed; accepted: pip install 'volary\[torchvision"):
        source(root, "Grey").check()


def test_a_session_trains_with_it(root: Path) -> None:
    (root / "grey").touch()
    session = Session(
        network="softmax",
        data={"source": {"name": "torchvision", "dataset": "Grey", "root": str(root)}, "batch_size": 2},
        train={"steps": 2},
    )
    assert len(trained(0, 1, session).losses) == 2


def test_the_package_itself_finds_fashion_mnist_in_its_files(tmp_path: Path) -> None:
    if find_spec("torchvision") is None:
        pytest.skip("there is no torchvision here")
    for operator in ("nms", "qnms") if not hasattr(torch.ops.torchvision, "nms") else ():  # as in test_packages.py
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 5), ("t10k", 3)):
        pixels, labels = np.arange(count * 784, dtype=np.uint8), np.arange(count, dtype=np.uint8)
        header = np.array([2051, count, 28, 28], ">i4").tobytes()
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(np.array([2049, count], ">i4").tobytes() + labels.tobytes())
    fashion = source(tmp_path, "FashionMNIST", channels=1)
    train, test = fashion.open("train"), fashion.open("test")
    inputs, targets = train.fetch(torch.tensor([3]))
    assert (len(train), len(test), train.class_names[0], targets.item()) == (5, 3, "T-shirt/top", 3)
    expected = (torch.arange(3 * 784, 4 * 784) % 256).view(1, 28, 28) / 255
    torch.testing.assert_close(inputs[0], expected)
    made = source(tmp_path, "FakeData", arguments={"size": 6, "image_size": (3, 8, 8), "num_classes": 4}).open("train")
    assert (len(made), made.input_shape) == (6, (3, 8, 8))
