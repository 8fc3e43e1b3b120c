"""A loop of a user's own over servers: equality with one worker, and how far workers may be apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from _workers import alone
from train._behaviours import copied_models
from train._own_loops import as_a_session, network
from train._own_served import (
    BATCH,
    EPOCHS,
    SAMPLES,
    adam,
    bounded,
    by_processes,
    finding_out,
    judging_alone,
    kept,
    own_served,
    scheduled,
)
from train._own_workers import worker_in
from train._served import served
from train._training import session
from train._user_data import points
from train.test_own_loop import call as called
from volary.data.reader import SamplePlaces
from volary.data.sharing.among import Among
from volary.data.sharing.shared import shared
from volary.errors import SettingError, VolaryError
from volary.server.update_rule import SliceUpdate
from volary.session.script import Script
from volary.sharding.ranges import Range
from volary.sharding.samples import UNDIVIDED, SampleShare
from volary.train.model import build_model
from volary.train.own.loop_checkpoints import LoopCheckpoints
from volary.train.own.loop_feed import LoopFeed
from volary.train.own.model.share import Share
from volary.train.own.served.loop import ServedLoop
from volary.train.own.served.loop_start import LoopStart
from volary.train.own.served.model import ServedModel
from volary.train.own.served.portions import LoopPortions
from volary.train.own.served.position import RosterPosition
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.served.server.loop_optimizer import KINDS, LoopOptimizer
from volary.train.state.seeds import seed_all
from volary.train.update.optimizer_rule import OptimizerRule

ROUNDING = 1e-12


def learnt(rows: Any) -> float:
    """The sum of all samples' losses."""
    return sum(row.loss * row.samples for row in rows)


def loop_of(script: Script, rank: int = 0) -> ServedLoop:
    """The loop of a worker whose run nobody drives."""
    directory = SimpleNamespace(checkpoints=Path("checkpoints"))
    member: Any = SimpleNamespace(place=SimpleNamespace(rank=rank), directory=directory, remote=None)
    pulse, device = SimpleNamespace(asked_to_end=False), torch.device("cpu")
    return ServedLoop(LoopStart(script, member, Recorder(rank), pulse, device, {}), lambda: nullcontext(alone()))


def restored(worker: Worker) -> Worker:
    """With the names that may be saved."""
    worker.restore(model=None)
    return worker


def by_one(loop: Any) -> dict[str, Any]:
    """The same loop with all on one worker."""
    script = Script(function="a.py:loop")
    seed_all(1)
    recorder = Recorder(0)
    worker = worker_in(script, alone(), recorder, SimpleNamespace(asked_to_end=False))
    try:
        return {**loop(worker), "learnt": learnt(recorder.rows)}
    finally:
        worker.close()


@pytest.mark.parametrize("loop", [scheduled, by_processes, pytest.param(adam, marks=pytest.mark.slow)])
def test_over_servers_bsp_equals_one_worker_to_rounding_after_every_epoch(workers, loop):
    expected = by_one(loop)
    first, second, *_ = workers(4, own_served, loop, {"workers": 2, "exchange": {"name": "server", "servers": 2}})
    for found in (first, second):
        assert found.value["measured"] == pytest.approx(expected["measured"], abs=ROUNDING)
        assert found.value["steps"] == expected["steps"]
        for name, values in expected["state"].items():
            torch.testing.assert_close(found.value["state"][name], values, rtol=0, atol=ROUNDING)
            torch.testing.assert_close(first.weights[name], values, rtol=0, atol=ROUNDING)
    # each worker's rows have the loss that backward was called on, over its own samples
    assert learnt([*first.rows, *second.rows]) == pytest.approx(expected["learnt"], rel=1e-6)
    both = zip(first.value["seen"], second.value["seen"], strict=True)
    # the last batch of 3 is one worker's, and the other goes through the loop without samples
    assert [sum(seen) for seen in both] == [SAMPLES] * EPOCHS
    assert first.outcome == "finished"


def own_and_session(rank: int, world_size: int) -> Any:
    strategy = {"workers": 2, "exchange": {"name": "server", "servers": world_size - 2}}
    of = session("Wide", shuffle=False, source={"name": "points", "samples": 40}, strategy=strategy)
    kept = served(rank, world_size, of, "session")
    seed_all(of.train.seed)
    model = build_model(of, torch.device("cpu")).module
    own = own_served(rank, world_size, lambda worker: as_a_session(worker, model, points("train", 40)), strategy, "own")
    return (kept.parameters, own.weights) if rank == 0 else None


def test_over_servers_a_loop_of_ones_own_and_a_sessions_are_one_thing(workers):
    ours, own = workers(4, own_and_session)[0]
    assert ours.keys() == own.keys()
    assert all(torch.equal(ours[name], own[name]) for name in own), "bit for bit"


@pytest.mark.slow  # over all-reduce in test_own_loop.py
def test_over_servers_workers_find_out_together_what_one_worker_does(workers):
    expected = by_one(finding_out)
    for found in workers(3, own_served, finding_out, {"workers": 2})[:2]:
        assert found.value["losses"] == pytest.approx(expected["losses"], abs=ROUNDING)
        assert found.value["figures"] == [pytest.approx(one, abs=ROUNDING) for one in expected["figures"]]
        assert found.value["lengths"] == [[7, 7], [14, 14], [21, 21]], "without a sample of a batch one takes part, too"
        assert found.value["sum"] == [2.0, 2.0]


def test_where_workers_may_come_and_go_each_evaluates_by_itself_and_what_is_of_all_is_refused(workers):
    first, second, _ = workers(3, own_served, judging_alone, {"workers": 2, "consistency": "async"})
    assert all(0 < one["loss"] < 5 for one in first.value[:-1])
    for found in (first, second):
        assert found.value[-1].startswith("worker.mean is of all workers, who here go each at its own pace, and may co")
    assert len(second.value) == 1


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ssp", "async", "backup", {"name": "async", "push_every": 2}])
def test_every_model_over_servers_trains_an_own_loop_on_all_samples(workers, model):
    strategy = {"workers": 2, "consistency": model}
    first, second, _ = workers(3, own_served, scheduled, strategy)
    both = list(zip(first.value["seen"], second.value["seen"], strict=True))
    assert sum(map(sum, both)) >= SAMPLES * EPOCHS - BATCH
    assert first.value["measured"][-1] < 0.5
    assert first.outcome == "finished"


def test_under_ssp_an_own_loop_runs_ahead_of_a_slower_one_up_to_the_staleness_and_no_further(workers):
    first, _, _ = workers(3, own_served, bounded, {"workers": 2, "consistency": {"name": "ssp", "staleness": 2}})
    assert 2 <= max(first.value) <= 2 + 1, "one more where the other has not begun its batch"


@pytest.mark.parametrize(("loops", "called"), [(1, [0, 3, 4]), (3, [0, 1, 2, 3, 4])])
def test_a_worker_that_joins_calls_its_first_epoch_0_and_then_follows_the_run_s(loops, called):
    samples = TensorDataset(torch.zeros(SAMPLES, 2))
    data = shared(samples, BATCH, False, Among(SampleShare(2, 3), lambda plan: plan))
    portions, under_way = LoopPortions(data, torch.device("cpu")), count(2)  # the run is in its third epoch
    portions.begin()

    def epoch(first: int) -> Iterator[Any]:
        part = portions.read(SamplePlaces(next(under_way), 0, BATCH)).parts[0]
        yield part.inputs

    feed, keeping = LoopFeed(RosterPosition(portions, epoch)), LoopCheckpoints(None, Recorder(2), Share(1.0))
    keeping.follow(feed)
    found = []
    for number in keeping.epochs(5):
        found.append(number)
        for _ in range(loops):
            assert len([*feed]) == 1
    assert found == called


def test_a_resumed_loop_does_not_begin_again_with_a_for_that_had_ended_in_this_epoch_before():
    def feed() -> LoopFeed:
        data = shared(TensorDataset(torch.zeros(SAMPLES, 2)), BATCH, False, Among(UNDIVIDED))
        portions = LoopPortions(data, torch.device("cpu"))
        portions.begin()
        run = count()  # its epochs

        def epoch(first: int) -> Iterator[Any]:
            number = max(first, next(run))
            for start in (0, BATCH):
                yield (number, start, portions.read(SamplePlaces(number, start, start + BATCH)))[:2]

        return LoopFeed(RosterPosition(portions, epoch))

    before, after = feed(), feed()
    assert list(before) == [(0, 0), (0, BATCH)]
    assert next(iter(before)) == (1, 0)
    second = iter(before)
    next(second)
    state = before.state(within=before.under_way)
    after.resume(state, None, 1)
    assert [list(after) for _ in range(3)] == [[], [], [(state["epoch"], 0), (state["epoch"], BATCH)]]
    second.close()


def in_two_lives(
    rank: int, world_size: int, strategies: list[tuple[dict[str, Any], int]], processes: int = 0
) -> list[Any]:
    found, loop = [], partial(kept, processes=processes)
    for number, (more, leave) in enumerate(strategies):
        strategy = {"workers": 2, "exchange": {"name": "server", "servers": world_size - 2}} | more
        whole = own_served(rank, world_size, loop, strategy, f"whole-{number}")
        own_served(rank, world_size, partial(loop, leave=leave), strategy, f"cut-{number}")
        found.append((whole, own_served(rank, world_size, loop, strategy, f"cut-{number}")))
    return found


AMONG_BATCHES, LAST_OF_EPOCH, BETWEEN_EPOCHS = 8, 12, -12


@pytest.mark.parametrize(
    ("strategy", "leave", "processes"),
    [
        pytest.param({}, AMONG_BATCHES, 0, marks=pytest.mark.slow),
        ({}, AMONG_BATCHES, 1),
        pytest.param({"codec": "onebit"}, LAST_OF_EPOCH, 0, marks=pytest.mark.slow),
        pytest.param({}, BETWEEN_EPOCHS, 0, marks=pytest.mark.slow),
        pytest.param(
            {"consistency": {"name": "local", "period": 2, "outer": "adam"}}, AMONG_BATCHES, 2, marks=pytest.mark.slow
        ),
    ],
)
def test_over_servers_a_resumed_loop_ends_as_an_uninterrupted_one_bit_for_bit(workers, strategy, leave, processes):
    first, second, _ = workers(3, in_two_lives, [(strategy, leave)], processes)
    for ((whole, resumed),) in (first, second):
        assert resumed.value["seen"] == whole.value["seen"][abs(leave) :]
        assert resumed.value["lr"] == whole.value["lr"]
        for name, values in whole.value["last"].items():
            assert torch.equal(resumed.value["last"][name], values), name
        assert torch.equal(resumed.value["drawn"], whole.value["drawn"])
    ((whole, resumed),) = first
    assert all(torch.equal(resumed.weights[name], values) for name, values in whole.weights.items())
    assert not torch.equal(resumed.value["begun"], whole.value["begun"]), "restore loads the network, too"


def test_random_generators_stay_as_the_script_seeded_them():
    model, script = network(), Script(function="a.py:loop", strategy={"exchange": "server", "workers": 2})
    loop = loop_of(script, 1)
    seed_all(12)
    drawn = (torch.rand(3).tolist(), random.random(), np.random.rand())
    seed_all(12)
    loop.distribute([model], [torch.optim.SGD(model.parameters(), lr=0.1)], 1, summed=False, early=False)
    assert (torch.rand(3).tolist(), random.random(), np.random.rand()) == drawn
    loop.close()


def test_a_model_that_changes_after_servers_have_it_is_refused_at_that_step():
    model = network()
    served = ServedModel([model], [torch.optim.SGD(model.parameters(), lr=0.1)])
    served.refuse_changed()
    model.float()
    with pytest.raises(SettingError, match=r"0.weight is torch.float32 on cpu now, and servers have the model as"):
        served.refuse_changed()
    model[2] = nn.Linear(8, 3)
    with pytest.raises(SettingError, match=r"the model has other layers, and servers have the model as worker\."):
        served.refuse_changed()


def test_what_a_loop_over_servers_cannot_do_is_refused_in_a_sentence_each():
    script = Script(function="a.py:loop", strategy={"exchange": "server", "workers": 1})
    model, made = network(), list[Worker]()

    def worker() -> Worker:
        made.append(Worker(loop_of(script), script, Recorder(0), torch.device("cpu"), 0))
        return made[-1]

    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    distributed = worker()
    distributed.distribute(model, sgd)
    for call, words in [
        (lambda: worker().feed(iter([1, 2]), batch_size=2), "data that does not take each sample once an epoch, by in"),
        (
            lambda: worker().distribute(model, torch.optim.LBFGS(model.parameters())),
            "servers cannot have the optimiser",
        ),
        (
            lambda: worker().distribute(model, torch.optim.SGD(model[0].parameters(), lr=1)),
            "2.weight is trained and in",
        ),
        (lambda: distributed.clip_grad_norm_(model[0], 1.0), "parameters without 2.weight, and servers find the norm"),
        (lambda: distributed.clip_grad_norm_(model, 0.0), "was given 0.0, norm 2.0; accepted: above 0"),
        (
            lambda: restored(distributed).save(model=model),
            "worker.save was called before the first batch; accepted with",
        ),
        (lambda: sgd.step(lambda: 0.0), "a step was taken before the first batch"),
        (sgd.step, "a step was taken before the first batch"),
    ]:
        with pytest.raises(VolaryError, match=words):
            call()
    for one in reversed(made):
        one.close()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_optimiser_on_servers_does_what_the_workers_own_would(kind):
    def made(model: nn.Module) -> Any:
        groups = [{"params": [model[0].weight], "lr": 0.02}, {"params": [model[2].weight], "weight_decay": 0.1}]
        return getattr(torch.optim, kind)(groups, lr=0.01)

    own, theirs = network().float(), network().float()
    for bias in (own[0].bias, own[2].bias):
        bias.requires_grad = False
    trained = {name: one for name, one in own.named_parameters() if one.requires_grad}
    mine = made(own)
    told = msgspec.json.decode(msgspec.json.encode(LoopOptimizer.of([mine], trained)), type=LoopOptimizer)
    parts = {Range(name, 0, one.numel()): theirs.get_parameter(name).detach() for name, one in trained.items()}
    served = OptimizerRule({0: parts}, told)
    for rate in (0.5, 0.25):
        gradients = [torch.randn_like(one) for one in trained.values()]
        for one, gradient in zip(trained.values(), gradients, strict=True):
            one.grad = gradient.clone()
        for group in mine.param_groups:
            group["lr"] = rate * group["lr"]
        rates = tuple(group["lr"] for group in mine.param_groups)
        mine.step()
        served.apply(0, list(parts.values()), SliceUpdate(gradients, rates=rates))
    for part, values in parts.items():
        torch.testing.assert_close(values, trained[part.name].detach(), rtol=0, atol=0)


def compiled_served(rank: int, world_size: int) -> dict[str, torch.Tensor] | None:
    found = own_served(rank, world_size, copied_models.compiled_function, {"workers": 1})
    return None if found is None else found.weights


def compiled_alone(rank: int, world_size: int) -> Any:
    return called(copied_models.compiled_function, rank, world_size, 0)[0]


@pytest.mark.slow  # torch's compiler takes its time
def test_a_function_that_is_compiled_reads_what_servers_have_updated(workers):
    (alone,) = workers(1, compiled_alone)
    for name, values in workers(2, compiled_served)[0].items():
        torch.testing.assert_close(values, alone[name], rtol=0, atol=1e-9)
