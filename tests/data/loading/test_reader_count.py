"""How many readers there are is measured while the consumer waits: it settles near the best and changes no batch."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch

from data.loading._digits import Digits
from volary.data.feed import Feed
from volary.data.loading import reader_count, readers
from volary.data.loading.pipeline import Pipeline
from volary.data.loading.reader_count import FIRST, TURN_S, ReaderCount
from volary.data.records.files import Files
from volary.train.recording.reads import Reads

BATCH = 128
MEDIA = {  # microseconds a sample, by the number of readers
    "a disk beside the interpreter's lock": {1: 66, 2: 55, 4: 44, 8: 40, 16: 60, 32: 80},
    "a store far away": {1: 4000, 2: 2000, 4: 1000, 8: 500, 16: 260, 32: 140},
    "a store that takes 16 requests at a time": {1: 800, 2: 400, 4: 200, 8: 100, 16: 55, 32: 55},
    "a disk with one head": {1: 260, 2: 250, 4: 320, 8: 400, 16: 500, 32: 600},
    "two cores that decode": {1: 700, 2: 700, 4: 700, 8: 700, 16: 700, 32: 700},
}


def fed(count: ReaderCount, medium: dict[int, int], seed: int, *, computes_s: float = 0.0, pause_at: int = -1) -> int:
    """Take batches until the number is settled, at most 5,000: how many. A sample takes up to 20 % more or less."""
    noise = random.Random(seed)
    for batch in range(5000):
        if count.why:
            return batch
        made_s = BATCH * medium[count.number] * 1e-6 * noise.uniform(0.8, 1.2)
        paused_s = 10.0 if batch == pause_at else 0.0
        count.took(paused_s + max(made_s, computes_s), max(0.0, made_s - computes_s), BATCH, count.number)
    return 5000


@pytest.mark.parametrize("name", MEDIA)
def test_the_number_that_is_settled_is_nearly_the_best(name):
    medium = MEDIA[name]
    for seed in range(50):
        count = ReaderCount(window=1024)
        assert fed(count, medium, seed) < 5000
        assert medium[count.number] <= 1.2 * min(medium.values())


def test_an_evaluation_between_two_batches_does_not_decide():
    for pause_at in range(60):
        count = ReaderCount(window=1024)
        fed(count, MEDIA["a disk with one head"], seed=1, pause_at=pause_at)
        assert count.number <= 2


def test_where_the_consumer_is_slower_than_storage_nothing_is_tried():
    count = ReaderCount(window=1024)
    assert fed(count, MEDIA["a store far away"], seed=1, computes_s=0.1) == 5000
    assert (count.number, count.why) == (FIRST, "")


def test_what_was_begun_by_another_number_of_readers_is_not_counted():
    count = ReaderCount(window=BATCH)
    for _ in range(2):
        count.took(TURN_S, TURN_S, BATCH, FIRST)
    assert count.number == FIRST // 2
    for _ in range(9):
        count.took(TURN_S, TURN_S, BATCH, FIRST)
    assert count.number == FIRST // 2


def test_the_reason_has_what_every_number_came_to():
    count = ReaderCount(window=1024)
    fed(count, {4: 44, 8: 40, 16: 60}, seed=0)
    numbers = [word for word in count.why.replace(",", "").split() if word.isdigit() and int(word) in (4, 16)]
    assert numbers == ["4", "16"]
    assert count.why.startswith("a sample takes ")


class Recorder:
    leads = True

    def __init__(self) -> None:
        self.said: list[tuple[int, str]] = []

    def event(self, kind: str, **data) -> None:
        self.said.append((data["readers"], data["readers_why"]))


def test_files_are_read_by_a_number_that_changes_and_settles_and_is_told_once_with_every_batch_the_same(monkeypatch):
    for number in range(400):
        Path(f"{number}.bin").write_bytes(number.to_bytes(2))
    monkeypatch.setattr(reader_count, "TURN_S", 0.0)  # a turn is a window, however quick
    monkeypatch.setattr(readers, "WINDOW_BLOCKS", 2)
    monkeypatch.setattr(reader_count, "WAITED", 0.0)
    monkeypatch.setattr(readers, "QUIET", 10**9)  # as if all that is read came from a disk
    samples = Pipeline(
        Files(Path(), [f"{number}.bin" for number in range(400)]), torch.arange(400), None, Digits(), None
    )
    samples._readers.begin()
    same = Pipeline(samples.records, samples.targets, None, Digits(), None)
    recorder, tried = Recorder(), set()
    told = Reads(samples, recorder)
    for batch, expected in itertools.islice(zip(Feed(samples, 20), Feed(same, 20), strict=False), 600):
        assert batch.targets.tolist() == expected.targets.tolist()
        assert torch.equal(batch.inputs, expected.inputs)
        tried.add(samples.readers)
        told.tell_decoding()
        if samples.readers_why:
            break
    assert len(tried) > 1
    assert recorder.said[-1] == (samples.readers, samples.readers_why)
    assert [bool(why) for _, why in recorder.said] == [False] * (len(recorder.said) - 1) + [True]
