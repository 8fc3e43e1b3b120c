"""Threads of one worker that update its parameters without locks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from train._served import Kept, served
from train._training import OVERLAPPED, Quick, Trained, looked_at, made, session, started, trained
from volary.errors import SettingError
from volary.session import Session, SessionError
from volary.session.script import Script
from volary.train.hogwild.threads import LockFreeThreads
from volary.train.loop import Training, train
from volary.train.worker.session import device_for

SAMPLES, EPOCH, STEPS = 41, 5, 10  # steps of 10 samples, an epoch's last of one
ALL = {"name": "hogwild", "threads": 3, "period": STEPS}
RULES: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "lr": 0.2, "momentum": 0.9},
    "adam": {"name": "adam", "lr": 0.01},
    "caffe_sgd": {"name": "caffe_sgd", "lr": 0.1},
}


def hogwild(consistency: Any = None, network: str = "Exact", **more: Any) -> Session:
    strategy = {"consistency": consistency or ALL, **more.pop("strategy", {})}
    return session(network, strategy=strategy, **{"train": {"steps": STEPS}, **more})


def with_threads(it: Training, threads: int) -> Training:
    """The same, with other threads: with one nothing depends on who comes first."""
    network = it.coordinator.rank.network
    made = LockFreeThreads(threads, network.flow, network.update, network.precision, it.uncounted.look)
    return replace(it, threads=made)


def by_one_thread(rank: int, world_size: int, one: Session, folder: Path | str, **more: Any) -> Trained:
    it = with_threads(made(rank, world_size, one, folder, disk=Quick(), **more), 1)
    it.coordinator.saver.resume()
    with started(it):
        return looked_at(it, train(it))


@contextmanager
def calling(hook: Callable[[nn.Module, Tensor], None]) -> Iterator[None]:
    """Call `hook` with each network that computes, and its inputs."""

    def seen(module: nn.Module, inputs: tuple[Tensor, ...], _: Any) -> None:
        if type(module).__name__ == "Exact":
            hook(module, inputs[0])

    handle = nn.modules.module.register_module_forward_hook(seen)
    try:
        yield
    finally:
        handle.remove()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("more", [{}, {"accumulate": 3, "clip_norm": 0.5}], ids=["plain", "accumulated and clipped"])
def test_one_thread_does_what_a_worker_without_threads_does(rule, more, tmp_path):
    settings = {"optimizer": RULES[rule], "train": {"steps": STEPS, **more}, "schedule": "cosine"}
    alone = trained(0, 1, session("Exact", **settings), tmp_path / "alone")
    found = by_one_thread(0, 1, hogwild(**settings), tmp_path / "one")
    assert same(found.parameters, alone.parameters)
    assert [row.lr for row in found.rows] == [row.lr for row in alone.rows]
    assert found.rows[-1].loss == pytest.approx(sum(row.loss * row.samples for row in alone.rows[5:]) / SAMPLES)


def test_each_sample_is_learnt_from_once_an_epoch_and_each_step_is_told(tmp_path):
    seen: list[Tensor] = []
    with calling(lambda _, inputs: seen.append(inputs.clone())):
        found = trained(0, 1, hogwild(), tmp_path)
    assert found.outcome == "finished"
    assert [row.step for row in found.rows] == [*range(1, STEPS + 1)]
    assert [sum(row.samples for row in found.rows[first : first + EPOCH]) for first in (0, EPOCH)] == [SAMPLES] * 2
    epochs = torch.cat(seen).split(SAMPLES)
    assert len(epochs) == 2
    assert all(len(one.unique(dim=0)) == SAMPLES for one in epochs)


def test_threads_learn_at_the_same_time(tmp_path):
    meeting = threading.Barrier(2)  # passed by two at once only
    who = set[int]()

    def meet(module: nn.Module, _: Tensor) -> None:
        who.add(id(module))
        meeting.wait(60)

    it = made(0, 1, hogwild({**ALL, "threads": 2}, train={"steps": 4}), tmp_path)
    with calling(meet), started(it):
        train(it)
    assert len(who) == 2 and id(it.flow.module) not in who


def test_all_threads_have_the_parameters_of_the_network_itself_and_gradients_of_their_own(tmp_path):
    it = made(0, 1, hogwild(), tmp_path)
    before = [one.detach().clone() for one in it.flow.module.layers.parameters()]
    seen: list[nn.Module] = []
    with calling(lambda module, _: seen.append(module)), started(it):
        train(it)
    copies = {id(module): module for module in seen}
    assert 1 <= len(copies) <= 3
    for copy in copies.values():
        for own, shared in zip(copy.parameters(), it.flow.module.parameters(), strict=True):
            assert own is not shared and own.data_ptr() == shared.data_ptr()
    assert not any(torch.equal(old, new) for old, new in zip(before, it.flow.module.layers.parameters(), strict=True))


def test_they_learn_as_well_as_a_worker_that_is_alone(tmp_path):
    settings: dict[str, Any] = {
        "train": {"steps": 120},
        "evaluate": {"every": "120 steps"},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "source": {"name": "points", "samples": 410},
    }
    alone = trained(0, 1, session("Exact", **settings), tmp_path / "alone")
    found = trained(0, 1, hogwild({**ALL, "period": 30}, **settings), tmp_path / "threads")
    ((_, expected),), ((_, measured),) = alone.metrics, found.metrics
    assert expected["accuracy"] > 0.7
    assert measured["accuracy"] > expected["accuracy"] - 0.05


def test_running_statistics_of_batch_norm_are_those_of_all_threads(tmp_path):
    it = made(0, 1, hogwild(network="Dropping", batch_size=7), tmp_path)
    norm = it.flow.module.layers[1]
    with started(it):
        train(it)
    assert not torch.equal(norm.running_mean, torch.zeros(8))
    assert 1 <= norm.num_batches_tracked <= STEPS


def between(rank: int, world_size: int) -> list[Trained]:
    """With one thread each what workers have without; with two they are equal in the end."""
    local = {"name": "local", "period": 4, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}
    plain = session("Exact", strategy={"consistency": local, **OVERLAPPED}, train={"steps": STEPS})
    threads = hogwild({**local, "threads": 2}, strategy=OVERLAPPED)
    return [
        trained(rank, world_size, plain, "plain"),
        by_one_thread(rank, world_size, threads, "one"),
        trained(rank, world_size, threads, "two"),
        trained(rank, world_size, hogwild(strategy=OVERLAPPED), "hogwild"),
    ]


def test_between_workers_what_their_threads_have_changed_counts_as_with_local(workers):
    first, second = workers(2, between)
    for plain, one, two, own in (first, second):
        assert same(one.parameters, plain.parameters)
        assert (two.outcome, own.outcome) == ("finished", "finished")
        assert two.rows[-1].loss < two.rows[3].loss
    assert same(first[2].parameters, second[2].parameters) and same(first[3].parameters, second[3].parameters)


SERVED = {"workers": 2, "exchange": "server"}
MODELS = [ALL, {"name": "local", "threads": 2, "period": 3, "quorum": 1}, {"name": "elastic", "threads": 2}]


def over_servers(rank: int, world_size: int) -> list[Kept | None]:
    every = {"checkpoint": {"every": f"{STEPS} steps"}}
    return [
        served(rank, world_size, hogwild(one, "Deep", strategy=SERVED, **every), f"model-{number}")
        for number, one in enumerate(MODELS)
    ]


def test_over_servers_they_train_with_every_model_of_local_steps(workers):
    for kept in workers(3, over_servers)[0]:
        assert kept.run_outcome == "finished"
        assert all(one.isfinite().all() for one in kept.parameters.values())
        assert sum(row.samples for row in kept.rows) > 0


def test_a_resumed_run_goes_on_with_what_the_optimiser_of_all_threads_remembered(tmp_path):
    one = hogwild({**ALL, "period": 5}, optimizer=RULES["adam"])
    whole = by_one_thread(0, 1, one, tmp_path / "whole")
    by_one_thread(0, 1, one, tmp_path / "stopped", until=lambda step: step >= 5)
    again = by_one_thread(0, 1, one, tmp_path / "stopped")
    assert [row.step for row in again.rows] == [*range(6, 11)]
    assert same(again.parameters, whole.parameters)


def test_a_loss_that_is_no_number_is_no_update_and_what_a_thread_raises_ends_the_run(tmp_path):
    spoilt = {"name": "spoilt_points", "spoilt": [3]}
    more = {"train": {"steps": STEPS, "on_nonfinite": "skip"}, "source": spoilt}
    found = trained(0, 1, hogwild({**ALL, "period": 1}, **more), tmp_path / "skipped")
    assert len(found.events("skipped")) == 2
    assert all(one.isfinite().all() for one in found.parameters.values())

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("of the user")

    with calling(fail), pytest.raises(ZeroDivisionError, match="of the user"):
        trained(0, 1, hogwild(), tmp_path / "failed")


class Replacing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)
        return self.layer(inputs)


class Capturing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.compute = lambda inputs: self.layer(inputs)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.compute(inputs)


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        (Replacing, "threads is 2, and the network puts another tensor in the place of its buffer mean, which threads"),
        (Capturing, "threads is 2, and a copy of the network computes with layers of the one that it is a copy of"),
    ],
)
def test_a_network_that_threads_cannot_share_is_refused(network, sentence, tmp_path):
    one = session(network.__name__, strategy={"consistency": {**ALL, "threads": 2}}, train={"steps": 4})
    one = replace(one, network=replace(one.network, reference=f"{__file__}:{network.__name__}"))
    with pytest.raises(SettingError, match=sentence):
        trained(0, 1, one, tmp_path)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"consistency": {**ALL, "threads": 0}}, "consistency.threads: is 0; accepted: a whole number, 1 or more"),
        ({"consistency": {**ALL, "period": 0}}, "period: is 0; accepted: a whole number of steps, 1 or more"),
        ({"optimizer": "lbfgs"}, "optimizer lbfgs goes from one update to the next; accepted: threads=1, or sgd"),
        ({"train": {"steps": 4, "compile": True}}, "train.compile is of one thread's layers; accepted: threads=1"),
        ({"train": {"steps": 4, "recompute": ["layers"]}}, "train.recompute is of one thread's layers; accepted: thr"),
        ({"train": {"steps": 4, "average": "ema"}}, "train.average is ema: there is no moment between two updates"),
        (
            {"strategy": {"workers": 2, "partition": "sharded"}},
            "partition: is sharded, and consistency.threads is 3: threads of a worker update all parameters",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        hogwild(settings.pop("consistency", None), **settings)
    assert sentence in str(refused.value)


def test_a_loop_of_ones_own_and_a_device_of_one_queue_are_refused(monkeypatch):
    with pytest.raises(SettingError, match=r"threads is 3, and a loop of your own runs in one thread, .* a session$"):
        Script(program="mine.py", strategy={"consistency": ALL})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    place = SimpleNamespace(local_rank=0, beside=1, world_size=1, own_devices=False)
    with pytest.raises(SettingError, match=r"threads is 3, and training is on CUDA, .*; accepted: train.device=cpu"):
        device_for(hogwild(), place)
