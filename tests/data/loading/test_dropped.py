"""What samples have that nothing is made of is told once, by one worker, whoever decodes them."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from volary.data.feed import Feed
from volary.data.sources.images import Images
from volary.train.recording.reads import Reads

COUNT = 64


class Recorder:
    def __init__(self, rank: int) -> None:
        self.rank, self.warnings = rank, []

    def event(self, kind: str, **data: object) -> None:
        if kind == "warning":
            self.warnings.append(data["text"])


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
    assert recorder.warnings == [f"{text}`volary data check` names them"] * (rank == 0)
