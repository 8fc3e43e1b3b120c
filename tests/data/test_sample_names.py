"""A sample is called by its number, and by its file or record, where it has one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

from train._training import Quick, made, started
from volary.data.memory import InMemory
from volary.data.sample_names import called
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.errors import NotFinite
from volary.session import Session
from volary.train.loop import train


def in_folders(root: Path) -> Path:
    for number in range(8):
        path = root / ("train", "test")[number > 5] / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(path)
    return root


def test_files_have_names_and_rows_of_tables_in_memory_have_none(tmp_path):
    samples = Images(folder=in_folders(tmp_path)).open("train")
    name = f"sample 4 of the training data ({tmp_path}/train/b/3.png)"
    assert called(samples, 4) == called(Skipping(samples, lambda *_: None), 4) == name
    table = InMemory(torch.zeros(5, 2), torch.zeros(5, dtype=torch.int64), 2)
    assert called(table, 4) == "sample 4 of the training data"


def test_a_sample_whose_values_are_no_numbers_is_named_by_its_file(tmp_path):
    source = {"name": "images", "folder": str(in_folders(tmp_path)), "mean": [1e39]}  # more than 32 bits hold
    one = Session(network="softmax", data={"source": source, "batch_size": 2}, train={"steps": 2})
    it = made(0, 1, one, disk=Quick())
    with started(it), pytest.raises(NotFinite) as ended:
        train(it)
    assert re.search(rf"in sample \d of the training data \({tmp_path}/train/[ab]/\d.png\)", str(ended.value))
