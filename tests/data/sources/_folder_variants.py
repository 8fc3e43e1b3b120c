"""Variants of folders and tars of class folders."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

from data.sources._variants import (
    READ,
    REFUSED,
    TOLD,
    case,
    in_folders,
    opened,
    picture,
    refusal,
    remark,
    write,
)
from volary.data.sources.images import Images
from volary.errors import DataError


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
