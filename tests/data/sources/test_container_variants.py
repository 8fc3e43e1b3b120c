"""Folders, tars, WebDataset's shards and LMDB in all variants: read, told or refused, as docs/data.md says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from data.sources import _folder_variants, _record_variants  # noqa: F401
from data.sources._variants import (
    CASES,
    SAID,
    in_folders,
    opened,
    refusal,
)
from volary.data.sources import ROOM
from volary.data.sources.images import Images
from volary.errors import DataError

PAGE = Path(__file__).parents[3] / "docs" / "data.md"


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
