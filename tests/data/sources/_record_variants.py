"""Variants of WebDataset's shards and of LMDB."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.sources._variants import (
    READ,
    REFUSED,
    TOLD,
    case,
    picture,
    write,
)
from volary.data.loading.pipeline import Pipeline
from volary.data.records.lmdb import ACCEPTED
from volary.data.skipping import Skipping
from volary.data.sources import ROOM
from volary.errors import DataError


def shard(root: Path, files: dict[str, bytes]) -> Path:
    for split in ("train", "test"):
        with tarfile.open(root / f"{split}-0.tar", "w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return root / "train-0.tar"


def of_shard(root: Path, files: dict[str, bytes], **settings: Any) -> Pipeline:
    shard(root, files)
    return ROOM.load("shards")(folder=root, **settings).open("train")


def refused_shard(root: Path, files: dict[str, bytes], **settings: Any) -> str:
    with pytest.raises(DataError) as problem:
        of_shard(root, files, **settings)
    sentence = str(problem.value)
    assert sentence.startswith(f"{root}/train-0.tar:")
    return sentence.removeprefix(f"{root}/train-0.tar:")


@case("shards", "a dot in a folder, endings in capitals", READ)
def _(root: Path) -> None:
    samples = of_shard(root, {"v1.0/1.PNG": picture(), "v1.0/1.cls": b"0", "v1.0/2.png": picture(), "v1.0/2.CLS": b"1"})
    assert (samples.targets.tolist(), samples.remarks) == ([0, 1], ())


@case("shards", "other members, hidden ones, ones without an ending", TOLD)
def _(root: Path) -> None:
    files = {"README": b"", "1.png": picture(), "1.cls": b"0", "1.json": b"{}", "1.jpg": picture(kind="JPEG")}
    samples = of_shard(root, files | {"2.png": picture(), "2.cls": b"0", "2.json": b"{}", ".x.png": b""})
    assert len(samples) == 2
    assert samples.remarks == (
        f"{root}/train-*.tar: not read: 1 member without an ending (README); "
        "1 member whose name begins with a dot (.x.png); 3 members beside images and labels (.png, .json)",
    )


@case("shards", "files of the folder that neither part names", TOLD)
def _(root: Path) -> None:
    write(root, "README.png", "train_1.tar", "more/train-2.tar")
    samples = of_shard(root, {"1.png": picture(), "1.cls": b"0"})
    assert samples.remarks == (f"{root}: 2 files are not read: README.png, train_1.tar",)
    assert ROOM.load("shards")(folder=root).open("test").remarks == ()


@case("shards", "a dot in the name of a sample", REFUSED)
def _(root: Path) -> None:
    sentence = refused_shard(root, {"a.b.png": picture(), "a.b.cls": b"0"})
    assert sentence == "a: has no image (.jpg, .jpeg, .png, .webp, .ppm); it has .b.png, .b.cls"


@case("shards", "a sample without its image or label", REFUSED)
def _(root: Path) -> None:
    assert refused_shard(root, {"1.png": picture()}) == "1: has no .cls; it has .png"
    assert refused_shard(root, {"1.cls": b"0"}).startswith("1: has no image (.jpg, ")


@case("shards", "a member of a sample twice", REFUSED)
def _(root: Path) -> None:
    sentence = refused_shard(root, {"1.png": picture(), "./1.png": picture(), "1.cls": b"0"})
    assert sentence == "1.png: is there twice; accepted: each file of a sample once"


@case("shards", "a sample twice, or others between its files", REFUSED)
def _(root: Path) -> None:
    whole = {"1.png": picture(), "1.cls": b"0", "2.png": picture(), "2.cls": b"0"}
    for again in ({"./1.png": picture(), "./1.cls": b"1"}, {"1.txt": b"x"}):
        sentence = refused_shard(root, whole | again)
        assert sentence.startswith("1: is there twice, with others between; accepted: each sample once, its files one")


@case("shards", "a label that is JSON", REFUSED)
def _(root: Path) -> None:
    sentence = refused_shard(root, {"1.png": picture(), "1.json": b'{"label": 3}'}, target="json")
    assert sentence == "1.json: holds JSON; accepted: a line of UTF-8 text: a number or a name"
    assert of_shard(root, {"1.png": picture(), "1.json": b"3"}, target="json").targets.tolist() == [3]


@case("shards", "a label that is empty, longer than a line, or not UTF-8", REFUSED)
def _(root: Path) -> None:
    for label in (b"", b" \n", b"0\n1\n", b"\xff\xfe0", b"x" * 5000):
        sentence = refused_shard(root, {"1.png": picture(), "1.cls": label})
        assert sentence == "1.cls: holds no label; accepted: a line of UTF-8 text: a number or a name"


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def datum(data: bytes = b"", channels: int = 3, label: int | None = 0, *, encoded: bool = False) -> bytes:
    head = b"".join(bytes([field << 3]) + varint(value) for field, value in ((1, channels), (2, 4), (3, 6)))
    tail = b"" if label is None else bytes([5 << 3]) + varint(label)
    return head + bytes([4 << 3 | 2]) + varint(len(data)) + data + tail + bytes([7 << 3, encoded])


def database(path: Path, *values: bytes) -> None:
    lmdb = pytest.importorskip("lmdb")
    path.parent.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), map_size=2**22) as made, made.begin(write=True) as writing:
        for number, value in enumerate(values):
            writing.put(f"{number:04}".encode(), value)


def of_lmdb(root: Path, *values: bytes, test: bytes = b"", split: Any = "train", **settings: Any) -> Pipeline:
    database(root / "train", *values)
    database(root / "test", test or values[0])
    return ROOM.load("lmdb")(train=root / "train", test=root / "test", **settings).open(split)


planes = np.arange(72, dtype=np.uint8).reshape(3, 4, 6)


@case("LMDB", "encoded images", READ)
def _(root: Path) -> None:
    samples = of_lmdb(root, datum(picture(200), encoded=True, label=2))
    assert (samples.fetch(torch.tensor([0]))[0][0, 0] * 255).round().unique().tolist() == [200]
    assert (samples.targets.tolist(), samples.classes) == ([2], 3)


@case("LMDB", "plain planes: blue, green, red, or `bgr: false`; grey", READ)
def _(root: Path) -> None:
    inputs = of_lmdb(root / "bgr", datum(planes.tobytes())).fetch(torch.tensor([0]))[0]
    assert (inputs[0] * 255).round().byte().numpy().tolist() == planes[::-1].tolist()
    inputs = of_lmdb(root / "rgb", datum(planes.tobytes()), bgr=False).fetch(torch.tensor([0]))[0]
    assert (inputs[0] * 255).round().byte().numpy().tolist() == planes.tolist()
    inputs = of_lmdb(root / "grey", datum(planes[0].tobytes(), 1), channels=1).fetch(torch.tensor([0]))[0]
    assert (inputs[0] * 255).round().byte().numpy().tolist() == planes[:1].tolist()


@case("LMDB", "`float_data`", REFUSED)
def _(root: Path) -> None:
    floats = datum(label=0) + bytes([6 << 3 | 5]) + bytes(4) + bytes([6 << 3 | 2]) + varint(8) + bytes(8)
    told: list[str] = []
    samples = Skipping(of_lmdb(root, datum(planes.tobytes()), floats), lambda _, text: told.append(text))
    assert len(samples.fetch(torch.arange(2))[0]) == 1
    assert told[0].startswith(f"{root}/train:0001: not a Datum with an image that can be decoded (it has float_data; ")


@case("LMDB", "planes of another number than 1 or 3", REFUSED)
def _(root: Path) -> None:
    told: list[str] = []
    samples = of_lmdb(root, datum(planes.tobytes()), datum(planes[:2].tobytes(), 2))
    Skipping(samples, lambda _, text: told.append(text)).fetch(torch.arange(2))
    assert (
        "train:0001: not a Datum with an image that can be decoded (it has 2 channels; accepted: 1 (grey), 3" in told[0]
    )


@case("LMDB", "an image without pixels", REFUSED)
def _(root: Path) -> None:
    told: list[str] = []
    flat = datum().replace(bytes([2 << 3, 4]), bytes([2 << 3, 0]))
    Skipping(of_lmdb(root, datum(planes.tobytes()), flat), lambda _, text: told.append(text)).fetch(torch.arange(2))
    assert "train:0001: not a Datum with an image that can be decoded (it has no pixels: (3, 0, 6))" in told[0]


@case("LMDB", "no label, one below 0 or beyond 9,999,999", REFUSED)
def _(root: Path) -> None:
    for label, said in ((None, "has no label"), (-1, "has the label -1"), (10**7, "has the label 10000000")):
        with pytest.raises(DataError) as problem:
            of_lmdb(root / str(label), datum(planes.tobytes()), datum(planes.tobytes(), label=label))
        path = root / str(label) / "train"
        assert str(problem.value) == f"{path}:0001: {said}; accepted: {ACCEPTED}"


@case("LMDB", "a label that the training part lacks", REFUSED)
def _(root: Path) -> None:
    with pytest.raises(DataError) as problem:
        of_lmdb(root, datum(planes.tobytes(), label=4), test=datum(planes.tobytes(), label=5), split="test")
    assert str(problem.value) == f"{root}/test:0000: has the label 5; accepted: 0 to 4, as in {root}/train"


@case("LMDB", "a value that is no Datum", REFUSED)
def _(root: Path) -> None:
    with pytest.raises(DataError, match=f"{root}/train:0000: "):
        of_lmdb(root, b"\xff" * 40)
