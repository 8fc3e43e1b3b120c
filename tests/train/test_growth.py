"""Batches that grow: which size is taken, that trying costs nothing but time, and that a run stays exact."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from train._training import OVERLAPPED, Quick, Trained, session, trained
from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.data.memory import InMemory
from volary.errors import SettingError
from volary.session import Session, SessionError
from volary.train.agreement.votes import Agreed
from volary.train.batches.auto import AutoBatch
from volary.train.recording.recorder import Recorder

AGREED = Agreed(loss=0.0, ending=False, busy=1, not_finite=())


class Tried:
    """A search on 400 samples in batches of 10 at first, where each size has the loss that is told."""

    def __init__(self, *, trial: float = 0.5, ending: bool = False, **settings: Any) -> None:
        samples = InMemory(torch.arange(400.0).view(-1, 1), torch.arange(400), classes=400)
        self.feed, self.recorder = Feed(samples, 10), Recorder(0)
        self.feed.limit(400)
        self.growth = AutoBatch(trial=trial, **settings).build(self.feed, self.recorder)
        self.ending = ending
        self.seen: dict[int, list[int]] = {}  # the samples that each size was tried on

    def search(self, losses: dict[int, float]) -> int:
        """The size that is chosen at the end of the epoch at hand."""
        while not self.growth.due:
            next(self.feed)
        state = self.feed.state()
        self.seen, came_back = {}, list[int]()

        def agreed() -> Agreed:
            return replace(AGREED, loss=losses[self.feed.size], ending=self.ending)

        for batch in self.growth.search(agreed, lambda: came_back.append(self.feed.size)):
            self.seen.setdefault(self.feed.size, []).extend(batch.targets.tolist())
        assert self.growth.due is self.ending
        assert came_back == list(self.seen)
        assert self.feed.state() == state
        return self.feed.size


def test_the_largest_size_before_the_first_that_learns_worse_is_taken():
    tried = Tried()
    assert tried.search({10: 1.0, 14: 1.009, 20: 0.5}) == 20
    assert not tried.growth.due
    assert tried.search({10: 1.0, 14: 1.009, 20: 1.011, 28: 0.1, 40: 0.1}) == 14
    assert tried.search({10: 1.0, 14: 2.0, 20: 0.1, 28: 0.1}) == 10


def test_every_size_is_tried_on_the_samples_that_come_next():
    tried = Tried()
    tried.search({10: 1.0, 14: 1.0, 20: 1.0})
    assert {size: len(seen) for size, seen in tried.seen.items()} == {10: 200, 14: 200, 20: 200}
    (samples,) = {tuple(seen) for seen in tried.seen.values()}
    assert list(samples[:20]) == next(tried.feed).targets.tolist()


def test_a_loss_that_is_no_number_counts_as_worse_and_without_any_the_size_stays():
    tried = Tried()
    assert tried.search({10: 1.0, 14: math.nan, 20: 0.1}) == 10
    assert tried.search({10: math.inf, 14: 0.1, 20: 0.1}) == 10


def test_a_margin_of_a_negative_loss_lies_above_it():
    assert Tried(margin=0.1).search({10: -1.0, 14: -0.95, 20: -0.85}) == 14


def test_sizes_stay_within_most_and_a_quarter_of_a_trial():
    assert Tried(most=19).search({10: 1.0, 14: 1.0}) == 14
    assert Tried(trial=0.15).search({10: 1.0, 14: 1.0}) == 14  # 60 samples


def test_who_is_asked_to_end_chooses_nothing_and_searches_when_it_goes_on():
    tried = Tried(ending=True)
    assert tried.search({10: 1.0}) == 10
    assert tried.growth.due
    assert not tried.recorder.events


def test_a_search_tells_the_sizes_it_tried_and_how_long_the_run_has_become():
    tried = Tried()
    tried.search({10: 1.0, 14: 1.0, 20: 1.5})
    told = {"size": 14, "was": 10, "losses": {"10": 1.0, "14": 1.0, "20": 1.5}}
    event, note = tried.recorder.events
    assert (event["event"], event["data"]) == ("batch_size", told)
    assert note == {"note": {"batch_size": "14", "steps_planned": str(9 * 29)}}


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter([(torch.zeros(1), 0)] * 8)


def test_settings_that_cannot_work_are_refused():
    for wrong in ({"trial": 0.0}, {"trial": 1.1}, {"margin": -0.1}, {"most": 0}, {"every": "never"}):
        with pytest.raises((SettingError, SessionError), match=next(iter(wrong))):
            session("Dropping", batch={"name": "auto", **wrong})
    with pytest.raises(SessionError, match=r"data\.batch\.most: is 8; accepted: at least batch_size, 10"):
        session("Dropping", batch={"name": "auto", "most": 8})
    with pytest.raises(SettingError, match=r"trial is 0\.05, 2 of the 40 steps in 1 epoch; accepted: a share of"):
        Tried(trial=0.05)
    endless = Feed(Stream(Endless(), "endless", 2), 4, shuffle=False)
    with pytest.raises(SettingError, match="every is '1 epoch', and the data is a stream without a length"):
        AutoBatch().build(endless, Recorder(0))


def growing(strategy: dict[str, Any] | None = None, *, width: int = 8, **batch: Any) -> Session:
    """Dropout, batch norm and a schedule, over 4 epochs of 10 steps, of which each ends with a checkpoint."""
    return session(
        "Dropping",
        of={"width": width},
        source={"name": "points", "samples": 100},
        batch={"name": "auto", "trial": 0.8, "margin": 0.3, **batch},
        optimizer={"name": "adam", "lr": 0.02},
        schedule={"name": "cosine", "warmup": 15},
        train={"epochs": 4},
        checkpoint={"every": "1 epoch", "keep_last": 9},
        strategy=strategy or {},
    )


def ended_in_search(step: int) -> bool:
    return step > 10  # the search that follows step 10 is still at it


def whole_and_resumed(rank: int, world_size: int, strategy: dict[str, Any]) -> list[Trained]:
    """A run of fixed batches, one whose batches may not grow, one that grows, and that one ended twice and resumed."""
    fixed = replace_batch(growing(strategy))
    runs = [
        trained(rank, world_size, fixed, "fixed", disk=Quick()),
        trained(rank, world_size, growing(strategy, most=10), "held", disk=Quick()),
        trained(rank, world_size, growing(strategy), "whole", disk=Quick()),
    ]
    ends = [lambda step: rank == 0 and step == 10, ended_in_search, lambda _: False]
    return [*runs, *(trained(rank, world_size, growing(strategy), "again", disk=Quick(), until=end) for end in ends)]


def replace_batch(one: Session) -> Session:
    return replace(one, data=replace(one.data, batch="fixed"))


def check(runs: list[Trained]) -> None:
    fixed, held, whole, before, within, resumed = runs
    assert [run.outcome for run in runs] == ["finished"] * 3 + ["stopped"] * 2 + ["finished"]
    for name, parameter in fixed.parameters.items():
        assert torch.equal(parameter, held.parameters[name]), f"a search changed {name}"
    assert fixed.losses == held.losses
    assert [row.step for row in before.rows] == list(range(1, 11))
    assert not within.rows
    assert before.losses + resumed.losses == whole.losses
    for name, parameter in whole.parameters.items():
        assert torch.equal(parameter, resumed.parameters[name]), f"{name} differs after a resume"


def test_searches_change_nothing_else_and_a_resumed_run_equals_an_uninterrupted_one():
    runs = whole_and_resumed(0, 1, {})
    check(runs)
    whole = runs[2]
    sizes = [event["size"] for event in whole.events("batch_size")]
    assert len(sizes) == 3 and max(sizes) > 10, "the search after an epoch, but for the last"
    assert whole.notes("steps_planned")[-1] == str(len(whole.rows))
    samples = [sum(row.samples for row in whole.rows if epoch < row.epoch <= epoch + 1) for epoch in range(4)]
    assert samples == [100] * 4


def test_the_learning_rate_follows_the_data_and_grows_with_the_batch():
    whole = trained(0, 1, growing(), "whole", disk=Quick())
    fixed = trained(0, 1, replace_batch(growing()), "fixed", disk=Quick())
    size, events = 10, whole.events("batch_size")
    for row in whole.rows:
        begun = round(row.epoch * 10) - max(1, row.samples // 10)
        if row.step > 10 and begun % 10 == 0 and events:
            size = events.pop(0)["size"]
        if row.samples in (10, 20):  # of whole steps
            assert row.lr == pytest.approx(fixed.rows[begun].lr * size / 10)


def with_residuals(rank: int, world_size: int, strategy: dict[str, Any]) -> list[list[Trained]]:
    """Runs without a codec, see `whole_and_resumed`; and with one, of fixed batches and of those that may not grow."""
    lossy = growing({**strategy, "codec": {"name": "topk", "ratio": 0.1, "warm_up_samples": 150}}, width=256, most=10)
    return [
        whole_and_resumed(rank, world_size, strategy),
        [
            trained(rank, world_size, replace_batch(lossy), "fixed lossy", disk=Quick()),
            trained(rank, world_size, lossy, "held lossy", disk=Quick()),
        ],
    ]


@pytest.mark.slow  # one worker resumes exactly above
def test_several_workers_choose_alike_and_resume_exactly_with_the_same_residuals(workers):
    (first, lossy), (second, _) = workers(2, with_residuals, {**OVERLAPPED, "bucket_mb": 1e-2})
    fixed, held = lossy
    assert fixed.losses == held.losses
    assert len(held.events("batch_size")) == 3
    check(first)
    check(second)
    assert [row.samples for row in first[2].rows] == [row.samples for row in second[2].rows]
    for name, parameter in first[2].parameters.items():
        assert torch.equal(parameter, second[2].parameters[name])
    assert max(event["size"] for event in first[2].events("batch_size")) > 10
