"""A stream in shards trains alike with any number of workers, and is resumed where it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from _workers import alone as a_group_of_one
from _workers import joined
from train._own_loops import FEATURES, network
from train._own_workers import worker_in
from train._training import session, trained
from train.test_keeping import Killed, drafts
from volary.errors import SettingError
from volary.session import Session
from volary.session.script import Script
from volary.session.spec import Strategy
from volary.train.model import build_model
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder

EXACT = 1e-9  # in 64 bits


def of(steps: int = 14, workers: int = 1, **strategy: Any) -> Session:
    one = session("Exact", source={"name": "InShards"}, shuffle=False, train={"steps": steps})
    one = replace(one, evaluate=replace(one.evaluate, every="7 steps"))
    return replace(one, strategy=Strategy(workers=workers, **strategy))


def begun(rank: int, world_size: int) -> tuple[Any, Any, Any]:
    """Results of two workers, with copies and with shards, and half of a training, for others to resume."""
    whole = trained(rank, world_size, of(workers=2), "whole")
    sharded = trained(rank, world_size, of(workers=2, partition="sharded"), "sharded")
    trained(rank, world_size, of(workers=2), "half", until=lambda step: step >= 6)
    return whole, sharded, trained(rank, world_size, of(workers=2), "half")


def test_two_workers_learn_and_evaluate_as_one_and_resume_bit_for_bit(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = trained(0, 1, of(), "alone")
    assert len(alone.metrics) == 2
    found = workers(2, begun)
    for whole, sharded, resumed in found:
        for name, values in alone.parameters.items():
            torch.testing.assert_close(whole.parameters[name], values, rtol=0, atol=EXACT)
            torch.testing.assert_close(sharded.parameters[name], values, rtol=0, atol=EXACT)
            assert torch.equal(resumed.parameters[name], whole.parameters[name])
        assert [row.samples for row in whole.rows] != [10] * 14  # shards end one after the other
    for (step, figures), (other, others) in zip(alone.metrics, found[0][0].metrics, strict=True):
        assert (step, figures) == (other, pytest.approx(others))


def test_one_worker_goes_on_with_the_stream_of_two(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = trained(0, 1, of(), "alone")
    workers(2, half)
    resumed = trained(0, 1, of(), "half")
    for name, values in alone.parameters.items():
        torch.testing.assert_close(resumed.parameters[name], values, rtol=0, atol=EXACT)


def half(rank: int, world_size: int) -> None:
    trained(rank, world_size, of(workers=2), "half", until=lambda step: step >= 6)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"strategy": {"workers": 2, "balance": "auto"}}, "strategy.balance is auto, and .* is a stream in shards"),
        ({"batch": {"name": "auto"}}, "data.batch grows, and .* is a stream in shards, .*; accepted: fixed"),
        (
            {"strategy": {"workers": 2, "exchange": "server"}},
            "is a stream, which only goes forward, and servers hand",
        ),
    ],
)
def test_what_needs_parts_of_another_size_is_refused(settings, sentence):
    one = session("Exact", source={"name": "InShards"}, shuffle=False, **settings)
    with pytest.raises(SettingError, match=sentence):
        build_model(one, torch.device("cpu"))


class Mappings:
    """Shards of 9, 4 and 6 samples, as mappings; opened: which were read."""

    num_shards = 3

    def __init__(self) -> None:
        self.epoch, self.opened = 0, set[int]()

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def shard(self, num_shards: int, index: int) -> Iterator[dict[str, Any]]:
        self.opened.add(index)
        drawn = torch.Generator().manual_seed(10 * self.epoch + index)
        for _ in range((9, 4, 6)[index]):
            inputs = torch.randn(FEATURES, generator=drawn, dtype=torch.float64)
            yield {"inputs": inputs, "target": int(inputs.sum() > 0)}


def looped(worker: Worker, stream: Mappings, die: int = -1) -> tuple[dict[str, Tensor], list[Any]]:
    """Three epochs of 7 steps, saved after each third; parameters, and samples of each step with two evaluations."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    steps = worker.restore(model=model, optimizer=optimizer, steps=0)["steps"]
    seen: list[Any] = []

    def loss(batch: Any) -> Tensor:
        return cross_entropy(model(batch["inputs"]), batch["target"])

    for _ in worker.epochs(3):
        for batch in worker.feed(stream, batch_size=4):
            optimizer.zero_grad()
            loss(batch).backward()
            optimizer.step()
            steps += 1
            seen.append(int(worker.sum(len(batch["target"]))))
            if steps == die:
                raise Killed
            if steps % 3 == 0:
                worker.save(model=model, optimizer=optimizer, steps=steps)
        seen.append(worker.evaluate(loss, Mappings(), batch_size=4))
    return {name: one.clone() for name, one in model.state_dict().items()}, seen


def in_a_loop(group: Any, folder: Path, stream: Mappings, die: int = -1) -> Any:
    script, recorder = Script(program="mine.py", strategy={"workers": group.size}), Recorder(group.rank)
    worker = worker_in(script, group, recorder, SimpleNamespace(asked_to_end=False), drafts(folder, recorder))
    try:
        return looped(worker, stream, die)
    except Killed:
        return None
    finally:
        worker.close()


def loops_of(rank: int, world_size: int) -> Any:
    stream = Mappings()
    whole = in_a_loop(joined(0), Path("../whole"), stream)
    in_a_loop(joined(1), Path("../cut"), Mappings(), die=8)
    return whole, in_a_loop(joined(2), Path("../cut"), Mappings()), stream.opened


def test_loops_of_ones_own_read_shards_of_their_own_learn_as_one_and_resume_bit_for_bit(workers, tmp_path):
    alone, seen = in_a_loop(a_group_of_one(), tmp_path / "alone", Mappings())
    assert [one for one in seen if isinstance(one, int)] == [4, 4, 4, 3, 2, 1, 1] * 3
    for rank, ((whole, counted), (resumed, again), opened) in enumerate(workers(2, loops_of)):
        assert opened == ({0, 2}, {0, 1})[rank]  # the first one by all, for its first sample
        torch.testing.assert_close(whole, alone, rtol=0, atol=EXACT)
        assert counted == pytest.approx(seen)
        assert again == counted[6:]
        assert all(torch.equal(values, whole[name]) for name, values in resumed.items())


def test_a_loop_of_ones_own_is_told_what_a_stream_in_shards_does_not_take(tmp_path):
    worker = worker_in(Script(program="mine.py"), a_group_of_one(), Recorder(0), None)
    with pytest.raises(SettingError, match="drop_last is true, and batches of a stream in shards have fewer samples"):
        worker.feed(DataLoader(Mappings(), batch_size=4, drop_last=True))
    with pytest.raises(SettingError, match=r"worker\.feed\(Mappings\) needs batch_size"):
        worker.feed(Mappings())
    worker.close()
