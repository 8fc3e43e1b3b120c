"""Folders, tars, WebDataset's shards and LMDB in all variants: read, told or refused, as docs/data.md says."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import torch
from PIL import Image

from data.decoding._image_files import saved
from volary.data.loading.pipeline import Pipeline
from volary.data.records.lmdb import ACCEPTED
from volary.data.skipping import Skipping
from volary.data.sources import ROOM
from volary.data.sources.images import Images
from volary.errors import DataError

PAGE = Path(__file__).parents[3] / "docs" / "data.md"
Case = Callable[[Path], None]
CASES: dict[tuple[str, str], Case] = {}
REFUSED, TOLD, READ = "refused", "told", "read"
SAID: dict[tuple[str, str], str] = {}


def case(table: str, variant: str, said: str) -> Callable[[Case], Case]:
    def note(function: Case) -> Case:
        CASES[table, variant], SAID[table, variant] = function, said
        return function

    return note


def picture(value: int = 0, kind: str = "PNG") -> bytes:
    return saved(Image.new("RGB", (6, 4), (value, 0, 0)), kind)


def write(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture())


def in_folders(root: Path) -> Path:
    """Two classes with an image in both parts; gives the training part."""
    write(root, *(f"{split}/{name}/0.png" for split in ("train", "test") for name in ("ant", "bee")))
    return root / "train"


def opened(root: Path, split: Any = "train", **settings: Any) -> Pipeline:
    return Images(folder=str(root), **settings).open(split)


def remark(root: Path) -> str:
    (text,) = opened(root).remarks
    assert text.startswith(f"{root}/train")
    return text


def refusal(root: Path, split: Any = "train") -> str:
    with pytest.raises(DataError) as problem:
        opened(root, split)
    return str(problem.value)


@case("folder", "endings in capitals, `.jpeg`, `.jpe`, `.jfif`, ...", READ)
def _(root: Path) -> None:
    part = in_folders(root)
    for name in ("1.PNG", "2.JPG", "3.jpeg", "4.Jpe", "5.jfif", "6.TIF"):
        write(part, f"ant/{name}")
    samples = opened(root)
    assert (len(samples), samples.remarks) == (8, ())


@case("folder", "one file name in two classes", READ)
def _(root: Path) -> None:
    in_folders(root)
    assert opened(root).fetch(torch.arange(2))[1].tolist() == [0, 1]


@case("folder", "a link to a file or a class folder", READ)
def _(root: Path) -> None:
    part = in_folders(root)
    (part / "ant" / "1.png").symlink_to(part / "bee" / "0.png")
    (part / "cat").symlink_to(part / "bee")
    assert opened(root).fetch(torch.arange(4))[1].tolist() == [0, 0, 1, 2]


@case("folder", "a link to nothing", TOLD)
def _(root: Path) -> None:
    (in_folders(root) / "ant" / "1.png").symlink_to(root / "nowhere")
    assert remark(root).endswith("train: not read: 1 file of another kind, as a link to nothing (ant/1.png)")


@case("folder", "another ending", TOLD)
def _(root: Path) -> None:
    write(in_folders(root), *(f"ant/{number}.txt" for number in range(7)))
    assert remark(root).endswith(
        "train: not read: 7 files with another ending (ant/0.txt, ant/1.txt, ant/2.txt, ant/3.txt, ant/4.txt, ...)"
    )


@case("folder", "hidden files and folders", TOLD)
def _(root: Path) -> None:
    part = in_folders(root)
    write(part, ".DS_Store", "ant/._0.png", ".ipynb_checkpoints/0.png")
    assert remark(root).endswith(
        "train: not read: 2 files whose name begins with a dot (.DS_Store, ant/._0.png); "
        "1 folder whose name begins with a dot (.ipynb_checkpoints)"
    )


@case("folder", "a file outside of class folders", TOLD)
def _(root: Path) -> None:
    write(in_folders(root), "cover.png")
    assert remark(root).endswith("train: not read: 1 file outside of class folders (cover.png)")


@case("folder", "a folder inside a class folder", TOLD)
def _(root: Path) -> None:
    write(in_folders(root), "ant/more/1.png")
    assert remark(root).endswith("train: not read: 1 folder deeper inside of class folders (ant/more)")


@case("folder", "a class folder without images", TOLD)
def _(root: Path) -> None:
    (in_folders(root) / "aardvark").mkdir()
    assert remark(root).endswith("train: not read: 1 folder without files to read: no class (aardvark)")
    assert opened(root).classes == 2


@case("folder", "a class that the training part lacks", REFUSED)
def _(root: Path) -> None:
    in_folders(root)
    write(root, "test/cat/0.png")
    assert refusal(root, "test") == f"{root}/test/cat/0.png: class 'cat' is not in {root}/train; accepted: ant, bee"


@case("folder", "a tar of the same name beside the folder", TOLD)
def _(root: Path) -> None:
    in_folders(root)
    path = tar_of(root / "train.tar.gz", ["ant/0.png", "cat/0.png"])
    samples = opened(root)
    assert (samples.classes, samples.remarks) == (2, (f"{path}: not read, as train is there, too",))
    assert opened(root, "test").remarks == ()


@case("folder", "in a store: a file outside of class folders, or deeper", TOLD)
def _(root: Path) -> None:
    store = fsspec.filesystem("memory")
    for name in ("ant/0.png", "bee/0.png", "notes.txt", "cover.png", "ant/more/1.png", ".hidden/1.png"):
        store.pipe_file(f"/media-variants/train/{name}", picture())
    try:
        samples = Images(folder="memory://media-variants").open("train")
        assert len(samples) == 2
        assert samples.remarks == (
            "memory://media-variants/train: not read: 1 file whose name begins with a dot (.hidden/1.png); "
            "1 file deeper inside of class folders (ant/more/1.png); 1 file outside of class folders (cover.png); "
            "1 file with another ending (notes.txt)",
        )
    finally:
        store.rm("/media-variants", recursive=True)


def tar_of(
    path: Path, names: list[str], *, form: int = tarfile.PAX_FORMAT, extra: tarfile.TarInfo | None = None
) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w", format=form) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            content = b"" if name.endswith("/") else picture()
            info.type, info.size = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE, len(content)
            tar.addfile(info, io.BytesIO(content))
        if extra is not None:
            tar.addfile(extra)
    return path


def in_tars(root: Path, *more: str, **settings: Any) -> Path:
    """The same in tars; gives that of the training part."""
    write(root, "test/ant/0.png")
    return tar_of(root / "train.tar", ["ant/0.png", "bee/0.png", *more], **settings)


LONG = f"ant/{'n' * 150}.png"


@case("tar", "ustar, pax and GNU's, with long names", READ)
def _(root: Path) -> None:
    for form in (tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        in_tars(root, LONG if form != tarfile.USTAR_FORMAT else "ant/1.png", form=form)
        samples = opened(root)
        assert (len(samples), samples.classes) == (3, 2)
        assert samples.fetch(torch.arange(3))[1].tolist() == [0, 0, 1]


@case("tar", "`.tar.gz`, `.tgz`", READ)
def _(root: Path) -> None:
    in_tars(root).rename(root / "plain")
    tar_of(root / "train.tar.gz", ["ant/0.png", "bee/0.png"])
    assert len(opened(root)) == 2


@case("tar", "folders before the class folders, `./`", READ)
def _(root: Path) -> None:
    write(root, "test/ant/0.png")
    tar_of(root / "train.tar", ["./data/train/ant/0.png", "./data/train/bee/0.png"])
    assert (opened(root).classes, opened(root).remarks) == (2, ())


@case("tar", "another ending, hidden files and folders", TOLD)
def _(root: Path) -> None:
    in_tars(root, "ant/notes.txt", "ant/._0.png", ".ipynb_checkpoints/0.png")
    assert remark(root).endswith(
        "train.tar: not read: 1 member with another ending (ant/notes.txt); "
        "2 members whose name begins with a dot (ant/._0.png, .ipynb_checkpoints/0.png)"
    )
    assert opened(root).classes == 2


@case("tar", "an image outside of folders, a class folder without images", TOLD)
def _(root: Path) -> None:
    in_tars(root, "cover.png", "cat/")
    assert remark(root).endswith(
        "train.tar: not read: 1 member outside of class folders (cover.png); "
        "1 folder without files to read: no class (cat)"
    )


@case("tar", "images in folders of two depths", REFUSED)
def _(root: Path) -> None:
    path = in_tars(root, "ant/more/1.png")
    assert refusal(root) == (
        f"{path}: has 'bee/0.png' and 'ant/more/1.png', so that it is unclear which folders are classes; "
        "accepted: all files in class folders of one depth"
    )


@case("tar", "a file twice", REFUSED)
def _(root: Path) -> None:
    path = in_tars(root, "./ant/0.png")
    assert refusal(root) == f"{path}: has 'ant/0.png' twice; accepted: each file once"


@case("tar", "links, devices, sparse files", REFUSED)
def _(root: Path) -> None:
    kinds = {tarfile.SYMTYPE: "a link", tarfile.LNKTYPE: "a link", tarfile.FIFOTYPE: "not a regular file"}
    for kind, what in {**kinds, tarfile.CHRTYPE: "not a regular file", tarfile.GNUTYPE_SPARSE: "sparse"}.items():
        info = tarfile.TarInfo("ant/1.png")
        info.type, info.linkname = kind, "0.png" if what == "a link" else ""
        path = in_tars(root, extra=info)
        assert refusal(root).startswith(f"{path}: 'ant/1.png' is {what}")


@case("tar", "a second tar behind the first, a damaged header", REFUSED)
def _(root: Path) -> None:
    path = in_tars(root, "cat/0.png")
    whole = path.read_bytes()
    path.write_bytes(whole + whole)
    assert ": has more at byte " in refusal(root)
    with tarfile.open(path) as tar:
        header = tar.getmember("cat/0.png").offset
    path.write_bytes(whole[: header + 150] + b"9" + whole[header + 151 :])
    assert refusal(root) == (
        f"{path}: has more at byte {header}, where its list of files ends: another tar, or a damaged header; "
        "accepted: one whole tar"
    )


@case("tar", "cut, without the blocks that end it", REFUSED)
def _(root: Path) -> None:
    path = in_tars(root)
    path.write_bytes(path.read_bytes()[:1536])
    assert "truncated" in refusal(root)


@case("tar", "`.tar.bz2`, `.tar.xz`, `.tar.zst`, `.zip`", REFUSED)
def _(root: Path) -> None:
    path = in_tars(root)
    with tarfile.open(root / "train.tar.xz", "w:xz"):
        pass
    path.unlink()
    accepted = "accepted: a folder train, or train.tar, train.tar.gz, train.tgz"
    assert refusal(root) == f"{root}: has no train; {accepted}"
    with pytest.raises(DataError, match=r"train.tar.xz: truncated or not a tar .*accepted: a .tar, .tar.gz or .tgz"):
        opened(root, train="train.tar.xz")


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


@pytest.mark.parametrize("variant", CASES, ids=" ".join)
def test_a_variant_is_read_or_told_or_refused(variant, tmp_path):
    CASES[variant](tmp_path)


def test_every_variant_has_its_row_in_the_docs_and_every_row_its_variant():
    section = PAGE.read_text(encoding="utf-8").split("\n### Folders and tars\n")[1].split("\n##")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert {(table, variant): said for table, variant, said in rows[2:]} == SAID


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list any folder")
@pytest.mark.parametrize("which", [".", "train", "train/ant"])
def test_a_folder_that_may_not_be_listed_is_refused(tmp_path, which):
    in_folders(tmp_path)
    folder = tmp_path / which
    folder.chmod(0)
    try:
        assert refusal(tmp_path).startswith(f"{folder}: cannot be re")
        if which != "train/ant":
            with pytest.raises(DataError, match=r"cannot be .* \(Permission denied\); accepted: "):
                Images(folder=str(tmp_path)).check()
    finally:
        folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list any folder")
@pytest.mark.parametrize("name", ["shards", "packed", "cifar", "idx", "parquet"])
def test_a_folder_of_any_source_that_may_not_be_listed_is_refused(tmp_path, name):
    folder = tmp_path / "closed"
    folder.mkdir(0)
    settings = {"train": folder, "test": folder} if name == "parquet" else {"folder": folder}
    try:
        with pytest.raises(DataError, match=rf"^{folder}.*: cannot be .* \(Permission denied\); accepted: "):
            ROOM.load(name)(**settings).check()
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_of_a_pack_that_is_no_class_of_it_is_named(tmp_path, label):
    from volary.data.preparation.packing import pack
    from volary.data.sources.packed import PackedShards

    in_folders(tmp_path / "files")
    for split in ("train", "test"):
        pack(opened(tmp_path / "files", split), tmp_path / split, 1000, lambda _: None)
    index = tmp_path / "train" / "index.npz"
    with np.load(index) as found:
        columns = dict(found)
    columns["labels"][1] = label
    np.savez(index, **columns)
    with pytest.raises(DataError) as problem:
        PackedShards(folder=tmp_path).open("train")
    assert str(problem.value) == f"{index}: bee/0.png has the label {label}; accepted: 0 to 1"
