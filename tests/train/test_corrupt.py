"""Samples that cannot be read: a step is the mean over the others on any number of workers, up to a stated share."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from train._served import Kept, served
from train._training import OVERLAPPED, Quick, Trained, looked_at, made, session, started, trained
from train._user_data import points
from train.test_served import over
from volary.data.order import epoch_order
from volary.errors import CorruptSample, DataError
from volary.session import Session
from volary.train.afterwards import check_session
from volary.train.loop import train

CORRUPT = (3, 17, 18, 40)
ROUNDING = 1e-11


def points_of(corrupt: tuple[int, ...] = CORRUPT, part: str = "train", share: float = 0.2, **more: Any) -> Session:
    one = session("Exact", source={"name": "CorruptPoints", "corrupt": corrupt, "part": part}, **more)
    return with_share(one, share)


def with_share(one: Session, share: float) -> Session:
    return replace(one, data=replace(one.data, skip_corrupt=share))


def quickly(rank: int, world_size: int, one: Session, folder: str = "c", **more: Any) -> Trained:
    return trained(rank, world_size, one, folder, disk=Quick(), **more)


def by_hand(module: nn.Module, corrupt: tuple[int, ...], steps: int = 20) -> nn.Module:
    """20 steps of SGD on means over the samples that can be read."""
    data, rule, done = points("train"), torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9), 0
    epoch = 0
    while True:
        order = epoch_order(41, 1, epoch, shuffle=True)
        for start in range(0, 41, 10):
            there = [index for index in order[start : start + 10].tolist() if index not in corrupt]
            if done == steps:
                return module
            done += 1
            if not there:
                continue
            rule.zero_grad()
            inputs, targets = data[there]
            nn.functional.cross_entropy(module(inputs), targets).backward()
            rule.step()
        epoch += 1


def test_a_step_is_the_mean_over_the_samples_that_were_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    it = made(0, 1, points_of(), disk=Quick())
    expected = by_hand(deepcopy(it.flow.module), CORRUPT)
    with started(it):
        found = looked_at(it, train(it))
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(found.parameters[name], parameter, rtol=0, atol=ROUNDING)
    assert sum(row.samples for row in found.rows) == 4 * (41 - len(CORRUPT))


def on_several(rank: int, world_size: int) -> tuple[list[Trained], Trained, Trained]:
    strategies: list[dict[str, Any]] = [{}, OVERLAPPED, {**OVERLAPPED, "bucket_mb": 1e-4}]
    found = [quickly(rank, world_size, points_of(strategy=one), f"c{n}") for n, one in enumerate(strategies)]
    clipped = points_of(strategy=OVERLAPPED, train={"steps": 20, "clip_norm": 1e9, "accumulate": 2})
    found.append(quickly(rank, world_size, clipped, "clipped"))
    one = points_of(strategy=OVERLAPPED)
    quickly(rank, world_size, one, "stopped", until=lambda step: step == 7)
    return found, quickly(rank, world_size, one, "whole"), quickly(rank, world_size, one, "stopped")


def test_workers_equal_one_though_only_one_of_them_lost_a_sample_and_a_resumed_run_equals_both(
    workers, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    alone = quickly(0, 1, points_of())
    everyone = workers(2, on_several)
    for found, whole, resumed in everyone:
        for one in found:
            torch.testing.assert_close(one.parameters, alone.parameters, rtol=0, atol=ROUNDING)
            losses = torch.tensor(one.losses), torch.tensor(alone.losses)  # no number where nothing could be read
            torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-6, equal_nan=True)
        for name, parameter in whole.parameters.items():
            assert torch.equal(resumed.parameters[name], parameter)
    said = [one for found, *_ in everyone for one in found[0].events("corrupt_sample")]
    assert {one["index"] for one in said} == set(CORRUPT)
    assert len(said) <= 2 * len(CORRUPT), "once by each rank that met it"
    assert {(one["split"], one["reason"]) for one in said} == {("train", f"point {index} is torn") for index in CORRUPT}
    warnings = [one["text"] for one in everyone[0][0][0].events("warning") if "could not be read" in one["text"]]
    assert warnings[0].endswith(" so far; they are skipped; `volary show` lists them")
    assert warnings[1:] == [
        "4 samples of the train part could not be read in epoch 0; they were skipped; `volary show` lists them"
    ]
    assert not [one for one in everyone[1][0][0].events("warning") if "could not be read" in one["text"]]


def beyond(rank: int, world_size: int) -> tuple[int, str]:
    it = made(rank, world_size, points_of(share=0.05), "c", disk=Quick())
    try:
        with started(it):
            train(it)
    except DataError as error:
        return it.recorder.step, str(error)
    return 0, ""


def test_beyond_the_share_all_ranks_end_at_the_same_step_with_the_list(workers):
    (step, said), other = workers(2, beyond)
    assert (step, said) == other
    first, *names = said.splitlines()
    assert first.startswith("3 of 41 samples of the train part could not be read, more than data.skip_corrupt (0.05 of")
    assert len(names) == 3
    assert {name.strip() for name in names} < {f"point {index} is torn" for index in CORRUPT}


def test_where_none_may_be_skipped_the_first_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    it = made(0, 1, points_of(share=0.0), disk=Quick())
    with started(it), pytest.raises(CorruptSample, match="is torn"):
        train(it)


def evaluate(rank: int, world_size: int) -> tuple[Trained, str]:
    every = {"every": "5 steps"}
    found = quickly(rank, world_size, points_of((1, 2), "test", evaluate=every))
    try:
        quickly(rank, world_size, points_of((1, 2), "test", share=0.1, evaluate=every), "again")
    except DataError as error:
        return found, str(error)
    return found, ""


@pytest.mark.slow  # training comes above
def test_an_evaluation_is_of_what_could_be_read_and_says_so(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = quickly(0, 1, points_of((1, 2), "test", evaluate={"every": "5 steps"}))
    (first, refused), (_, also) = workers(2, evaluate)
    for found in (alone, first):
        warnings = [one["text"] for one in found.events("warning") if "could not be read" in one["text"]]
        assert warnings == [
            "2 samples of the test part could not be read; figures are of the others; `volary show` lists them"
        ]
        accuracy = [figures["accuracy"] * 11 for _, figures in found.metrics]
        assert [round(count) for count in accuracy] == pytest.approx(accuracy, abs=1e-6), "of 11, not of 13"
    assert refused == also
    assert refused.startswith("2 of 13 samples of the test part could not be read, more than data.skip_corrupt (0.1 of")


def test_a_batch_of_which_nothing_can_be_read_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gone = tuple(epoch_order(41, 1, 0, shuffle=True)[20:30].tolist())
    it = made(0, 1, points_of(gone, share=0.5, train={"steps": 3}), disk=Quick())
    with started(it):
        found = looked_at(it, train(it))
    expected = by_hand(deepcopy(made(0, 1, points_of(), "d", disk=Quick()).flow.module), gone, steps=2)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(found.parameters[name], parameter, rtol=0, atol=ROUNDING)
    assert [row.samples for row in found.rows] == [10, 10, 0]


def over_servers(rank: int, world_size: int) -> tuple[Kept | None, str]:
    found = served(rank, world_size, over(points_of(), 2, 1))
    return found, ""


@pytest.mark.slow  # over all-reduce above
def test_servers_update_by_the_mean_over_what_could_be_read(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = quickly(0, 1, points_of())
    (found, _), *_ = workers(3, over_servers)
    torch.testing.assert_close(found.parameters, alone.parameters, rtol=0, atol=ROUNDING)
    assert [one["text"] for one in found.told("warning")] == [
        "samples that cannot be read are skipped; `volary show` lists them"
    ]


def test_what_is_tried_before_a_run_is_what_can_be_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check_session(points_of((0, 1, 40))).samples == 41
    with pytest.raises(DataError, match="point 0 is torn"):
        check_session(points_of((0, 1, 40), share=0.0))
