"""One worker reports once which parts of samples are dropped, whoever decodes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from train._served import served
from train._training import trained
from train.test_served import over
from volary.data.feed import Feed
from volary.data.sources.images import Images
from volary.session import Session
from volary.train.recording.reads import Reads
from volary.train.recording.recorder import Recorder

COUNT = 64


@pytest.mark.parametrize(("rank", "threads"), [(0, 1), (0, 2), (1, 2)])
def test_transparency_in_the_middle_of_an_epoch_is_told_by_the_first_worker(tmp_path, monkeypatch, rank, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for number in range(COUNT):
        path = tmp_path / "train" / "ab"[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGBA" if number > 40 else "RGB", (64, 64), (number, 2, 3, 4)[: 4 if number > 40 else 3]).save(path)
    samples, recorder = Images(folder=tmp_path, cache_mb=0).open("train"), Recorder(rank)
    told, feed = Reads(samples, recorder), Feed(samples, 4)
    for _ in range(3 * COUNT // 4):
        next(feed)
        told.tell_decoding()
    text = "the train part has samples with transparency, which is not read (colours are as stored); "
    warnings = [one["data"]["text"] for one in recorder.events if one["event"] == "warning"]
    assert warnings == [f"{text}`volary data check` names them"] * (rank == 0)


@pytest.mark.parametrize("after", ["in lock step", "over servers"])
def test_what_the_validation_part_has_is_told_once_it_was_seen(workers, after):
    for warnings in workers(2 if after == "over servers" else 1, validated, after == "over servers")[:1]:
        assert warnings == [
            "the test part has samples with transparency, which is not read (colours are as stored); "
            "`volary data check` names them"
        ]


def validated(rank: int, world_size: int, servers: bool) -> list[str]:
    """Warnings of a run whose last samples of validation are transparent."""
    folder = Path(f"images-{world_size}").absolute()
    for split, count in (("train", 12), ("test", 8)):
        for number in range(count):
            path = folder / split / "ab"[number % 2] / f"{number:03}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                mode, values = (
                    ("RGBA", (number, 2, 3, 4)) if split == "test" and number > 5 else ("RGB", (number, 2, 3))
                )
                Image.new(mode, (28, 28), values).save(path)
    one = Session(
        network="softmax",
        data={"source": {"name": "images", "folder": str(folder), "cache_mb": 0}, "batch_size": 4},
        train={"steps": 6},
        evaluate={"every": "3 steps"},
        checkpoint={"every": "never"},
    )
    if servers:
        kept = served(rank, world_size, over(one, 1, 1))
        said = [] if kept is None else kept.worker_said
    else:
        said = trained(rank, world_size, one).said
    return [one["data"]["text"] for one in said if one.get("event") == "warning"]
