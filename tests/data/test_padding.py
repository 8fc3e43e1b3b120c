"""Samples of differing size: filled up to the largest of their batch, those of like length together, each once."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from volary.data.batching.padding import IGNORED, padded
from volary.data.datasets.differing import let_differ
from volary.data.datasets.user_source import samples_of
from volary.data.feed import Feed
from volary.data.order import Bucketed, epoch_order
from volary.data.skipping import Skipping
from volary.data.sources.images import Images
from volary.data.sources.synthetic import Synthetic
from volary.data.sources.text import Text
from volary.errors import DataError, SettingError
from volary.network.losses.cross_entropy import CrossEntropy
from volary.sharding.samples import SampleShare


class Clips:
    """Sequences of as many values as their number says."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.full((self.lengths[index],), float(index)), index


def clips(count=200):
    samples = samples_of(Clips([1 + (7 * number) % 50 for number in range(count)]), "clips")
    let_differ(samples)
    return samples


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=300),
    batch=st.integers(1, 5),
    epoch=st.integers(0, 3),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)
@settings(max_examples=60)
def test_buckets_have_each_sample_once_however_they_are_read(lengths, batch, epoch, cuts):
    base = epoch_order(len(lengths), 1, epoch, True)
    whole = Bucketed(base, torch.tensor(lengths), batch, 1, epoch)[0 : len(lengths)]
    assert sorted(whole.tolist()) == list(range(len(lengths)))
    other, at = Bucketed(base, torch.tensor(lengths), batch, 1, epoch), [0, *sorted(cuts), len(lengths)]
    pieces = [other[start:end] for start, end in pairwise(at)]
    assert torch.cat(pieces)[: len(lengths)].tolist() == whole.tolist()


def test_samples_of_like_length_are_in_one_batch():
    feed, spread = Feed(clips(), 10), []
    feed.limit(feed.steps_per_epoch)
    seen = []
    for batch in feed:
        lengths = (batch.inputs != 0).sum(1)[1:] if batch.count > 1 else torch.zeros(1)
        spread.append(int(lengths.max() - lengths.min()))
        seen += batch.targets.tolist()
    assert sorted(seen) == list(range(200))
    assert sum(spread) / len(spread) < 5, "of 50; in a uniform order about 40"


def test_a_run_goes_on_in_buckets_on_another_number_of_workers_and_not_with_other_batches():
    one = Feed(clips(), 10)
    for _ in range(7):
        next(one)
    state, rest = one.state(), [next(one).targets.tolist() for _ in range(20)]
    three = [Feed(clips(), 10, share=SampleShare(rank, 3)) for rank in range(3)]
    for feed in three:
        feed.restore(state)
    for expected in rest:
        parts = [next(feed).targets.tolist() for feed in three]
        assert sorted(number for part in parts for number in part) == sorted(expected)
    with pytest.raises(DataError, match="shuffled in blocks of 20, the checkpoint was written with blocks of 10"):
        Feed(clips(), 20).restore(state)


def test_values_are_filled_up_at_the_end_of_each_dimension():
    assert padded([torch.ones(1, 2), torch.ones(2, 1)], 7).tolist() == [[[1, 1], [7, 7]], [[1, 7], [1, 7]]]


def test_samples_of_other_dimensions_are_refused_also_when_filled_up():
    class Mixed(Clips):
        def __getitem__(self, index):
            return torch.zeros((2,) * (1 + index)), 0

    samples = samples_of(Mixed([1, 2]), "mixed")
    let_differ(samples)
    with pytest.raises(DataError, match="or as many dimensions"):
        samples.fetch(torch.tensor([0, 1]))


def test_without_pad_the_sentence_names_it():
    with pytest.raises(DataError, match=r"accepted: one shape and type \(data.pad fills up the smaller ones\)"):
        samples_of(Clips([1, 2]), "clips").fetch(torch.tensor([0, 1]))


def test_lines_of_text_are_samples_with_targets_one_on(tmp_path: Path):
    (tmp_path / "text.txt").write_text("ab\n\nabcd\nb\nabcdefgh\n" + "ab\n" * 6)
    samples = Text(path=tmp_path / "text.txt", lines=True, length=5).open("train")
    inputs, targets = samples.fetch(torch.tensor([0, 1, 3]))
    letters = samples.vocabulary

    def shown(row):
        return "".join(letters[number] for number in row.tolist() if number != IGNORED)

    assert inputs.shape == targets.shape == (3, 5)
    assert [shown(row) for row in targets] == ["b\n", "bcd\n", "bcdef"]
    assert shown(inputs[0][:2]) == "ab"
    assert (targets[0, 2:] == IGNORED).all()
    assert samples.lengths.tolist()[:4] == [2, 4, 1, 5]


def test_what_is_filled_up_counts_neither_for_the_loss_nor_for_accuracy():
    criterion = CrossEntropy().build()
    torch.manual_seed(0)
    scores, target = torch.randn(2, 3, 4), torch.tensor([[1, 2, 3], [0, 1, 2]])
    short, cut = scores.clone(), target.clone()
    cut[1, 1:] = IGNORED
    expected = criterion.totals(
        torch.cat([scores[0], scores[1, :1]])[None], torch.cat([target[0], target[1, :1]])[None]
    )
    torch.testing.assert_close(criterion.totals(short, cut), expected)


def test_images_of_differing_size_come_in_one_batch(tmp_path: Path):
    sizes = [(4 + number % 5, 6 + number % 3) for number in range(12)]
    for split in ("train", "test"):
        for number, (height, width) in enumerate(sizes):
            path = tmp_path / split / "ab"[number % 2] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            buffer = io.BytesIO()
            Image.fromarray(np.full((height, width, 3), 10 + number, dtype=np.uint8)).save(buffer, "PNG")
            path.write_bytes(buffer.getvalue())
    samples = Images(folder=tmp_path).open("train")
    let_differ(samples)
    feed, seen = Feed(Skipping(samples, lambda *_: pytest.fail("all can be read")), 4), 0
    feed.limit(2 * feed.steps_per_epoch)
    for batch in feed:
        inputs = batch.to(torch.device("cpu")).inputs
        assert inputs.shape[0] == batch.count
        for image in inputs:
            filled = (image[0] > 0).sum(), image[0].max()
            number = round(float(filled[1]) * 255) - 10
            assert int(filled[0]) == sizes[number][0] * sizes[number][1]
            seen += 1
    assert seen == 24


def test_samples_that_cannot_differ_are_refused():
    with pytest.raises(SettingError, match=r"data\.pad is true, but this source gives samples of one size"):
        let_differ(Synthetic(samples=4).open("train"))
