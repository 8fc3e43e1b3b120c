"""Every rule for the size of a batch, by listing the room: a new file is tested the moment it exists."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest
import torch

from train.test_growth import AGREED
from volary.data.feed import Feed
from volary.data.memory import InMemory
from volary.train.batches import ROOM
from volary.train.recording.recorder import Recorder

SAMPLES, BATCH, STEPS = 400, 4, 300
EVERY = pytest.mark.parametrize("name", ROOM.names())


class Ruled:
    """A feed whose batches follow a rule, while every size that it tries learns equally well."""

    def __init__(self, name: str) -> None:
        self.feed = Feed(InMemory(torch.arange(SAMPLES).view(-1, 1).float(), torch.arange(SAMPLES), classes=1), BATCH)
        self.feed.limit(STEPS)
        self.rule = ROOM.load(name)()
        self.growth = self.rule.build(self.feed, Recorder(0))

    def batches(self, count: int) -> list[list[int]]:
        """The samples of the next ones."""
        found = []
        for _ in range(count):
            if self.growth is not None and self.growth.due:
                for _ in self.growth.search(lambda: replace(AGREED, loss=1.0), lambda: None):
                    pass
            found.append(next(self.feed).targets.tolist())
        return found


@EVERY
@pytest.mark.parametrize("batch_size", [1, BATCH, 1000])
def test_the_largest_batch_is_known_before_anything_starts_and_is_not_smaller_than_the_first(name, batch_size):
    assert ROOM.load(name)().largest(batch_size) >= batch_size


@EVERY
def test_each_epoch_has_each_sample_once_and_no_batch_is_larger_than_was_said(name):
    ruled, seen = Ruled(name), list[int]()
    while len(seen) < 2 * SAMPLES:
        (batch,) = ruled.batches(1)
        assert 0 < len(batch) <= ruled.rule.largest(BATCH)
        seen += batch
    assert sorted(seen[:SAMPLES]) == sorted(seen[SAMPLES:]) == list(range(SAMPLES))


@EVERY
def test_what_goes_on_from_a_saved_state_gives_the_same_batches(name):
    one, again = Ruled(name), Ruled(name)
    one.batches(STEPS // 2)
    again.feed.restore(one.feed.state())
    if one.growth is not None:
        again.growth.restore(one.growth.state())
    assert again.batches(40) == one.batches(40)


@EVERY
def test_its_settings_are_frozen(name):
    rule = ROOM.load(name)()
    assert dataclasses.is_dataclass(rule) and rule == ROOM.load(name)()
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.unknown = 1
