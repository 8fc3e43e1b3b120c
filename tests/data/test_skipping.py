"""Samples that cannot be read are left out of their batches and told once; all others are as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from volary.data.datasets.user_source import samples_of
from volary.data.feed import Feed, one_pass
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.errors import CorruptSample, DataError
from volary.sharding.samples import SampleShare


class Numbers:
    """The numbers below 10, of which some cannot be read; sample 8 is an error of the code."""

    classes = 10

    def __init__(self, *corrupt: int, broken: bool = False) -> None:
        self.corrupt, self.broken = corrupt, broken

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[float, int]:
        if index in self.corrupt:
            raise CorruptSample(f"number {index} is torn")
        if index == 8 and self.broken:
            raise KeyError("a mistake of the code")
        return float(index), index


def skipping(*corrupt: int, broken: bool = False) -> tuple[Skipping, list[tuple[int, str]]]:
    told: list[tuple[int, str]] = []
    return Skipping(samples_of(Numbers(*corrupt, broken=broken), "numbers"), lambda *what: told.append(what)), told


def test_what_cannot_be_read_is_left_out_and_told_once():
    samples, told = skipping(2, 5)
    for _ in range(2):
        inputs, targets = samples.fetch(torch.tensor([5, 1, 2, 3]))
        assert (inputs.tolist(), targets.tolist()) == ([1.0, 3.0], [1, 3])
    assert told == [(5, "number 5 is torn"), (2, "number 2 is torn")]
    inputs, targets = samples.fetch(torch.tensor([2, 5]))
    assert (inputs.shape, inputs.dtype, len(targets)) == ((0,), torch.float32, 0)
    assert (len(samples), samples.classes, samples.input_shape) == (10, 10, ())


def test_an_error_of_the_code_is_none_of_the_sample():
    samples, told = skipping(broken=True)
    with pytest.raises(KeyError, match="a mistake of the code"):
        samples.fetch(torch.tensor([7, 8]))
    assert told == []


def test_the_first_that_can_be_read_says_the_shape():
    samples, _ = skipping(0, 1)
    assert samples.fetch(torch.tensor([0, 1, 2]))[1].tolist() == [2]
    with pytest.raises(CorruptSample, match="number 9 is torn"):
        skipping(*range(10))


def test_a_feed_counts_what_its_batches_lost_and_names_the_others_rightly():
    samples, _ = skipping(2, 5, 6)
    feed = Feed(samples, 4, shuffle=False)
    batches = [next(feed) for _ in range(3)]
    assert [batch.targets.tolist() for batch in batches] == [[0, 1, 3], [4, 7], [8, 9]]
    assert [(batch.count, batch.lost, batch.total) for batch in batches] == [(3, 1, 4), (2, 2, 4), (2, 0, 2)]
    feed = Feed(samples, 4, share=SampleShare(1, 2))
    for _ in range(3):
        batch = next(feed)
        assert [feed.number(place) for place in range(batch.count)] == batch.targets.tolist()
    assert sum(batch.lost for batch in one_pass(samples, 3)) == 3


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for label in "ab":
            folder = tmp_path / split / label
            folder.mkdir(parents=True)
            for number in range(3):
                Image.new("L", (4, 4), 10 * number).save(folder / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize("cache_mb", [0, 1])
def test_pictures_that_are_cut_or_gone_or_too_large_are_skipped_and_named(pictures, cache_mb):
    first = pictures / "train" / "a" / "0.png"
    first.write_bytes(first.read_bytes()[:40])
    told: list[tuple[int, str]] = []
    opened = Images(folder=str(pictures), channels=1, cache_mb=cache_mb).open("train")
    (pictures / "train" / "b" / "1.png").unlink()
    samples = Skipping(opened, lambda *what: told.append(what))
    for _ in range(2):
        inputs, targets = samples.fetch(torch.arange(6))
        torch.testing.assert_close(255 * inputs[:, 0, 0, 0], torch.tensor([10.0, 20, 0, 20]))
        assert targets.tolist() == [0, 0, 1, 1]
    assert [index for index, _ in told] == [0, 4]
    assert told[0][1].startswith(f"{first}: not an image that can be decoded (")
    assert "No such file" in told[1][1]


def test_a_picture_of_another_size_is_no_corrupt_one(pictures):
    Image.new("L", (5, 4)).save(pictures / "train" / "a" / "1.png")
    samples = Skipping(Images(folder=str(pictures), channels=1).open("train"), lambda *_: None)
    with pytest.raises(DataError, match="is 5x4 pixels, the first image 4x4"):
        samples.fetch(torch.arange(6))
