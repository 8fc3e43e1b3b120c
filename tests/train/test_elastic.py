"""Elastic averaging: against the paper's recursion by hand, in 64 bits; the one model is the centre."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from _workers import joined
from train._by_hand import step_apart
from train._own_workers import worker_in
from train._served import Kept, served
from train._training import OVERLAPPED, Quick, Trained, made, session, trained
from volary.comm.sums.route import Memory
from volary.errors import SettingError
from volary.exchange.gradients.contributions import PushedPulls
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.server.update_rule import MeanRule, SliceUpdate
from volary.session import Session, SessionError
from volary.session.script import Script
from volary.session.spec import Strategy
from volary.train.afterwards import evaluate_run
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.served.centre import Centre
from volary.train.served.layout import cut_network
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.weights import SavedWeights

ROUNDING, RATE = 1e-12, 0.2
PLAIN = {"name": "sgd", "lr": 0.2}
NESTEROV = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True}
EVERY_STEP, EVERY_3 = {"name": "elastic", "rho": RATE}, {"name": "elastic", "rho": RATE, "period": 3}
STEPS = 12  # of 10 samples: 41 make 5 steps an epoch, and of the last one's only sample two workers have none


def elastic(consistency: Any, optimizer: dict[str, Any] = PLAIN, **more: Any) -> Session:
    strategy = {"consistency": consistency, **more.pop("strategy", OVERLAPPED)}
    return session("Exact", optimizer=optimizer, strategy=strategy, train={"steps": STEPS}, **more)


def recursion(
    one: Session, workers: int, folder: Path, *, ends_with_epochs: bool = True
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The centre and each worker's own in the end, by equations 2 and 3 of Zhang, Choromanska and LeCun (2015):

    x_i <- x_i - eta g_i(x_i) - alpha (x_i - centre), centre <- centre + alpha sum_i (x_i - centre), in each step of
    those that begin a period; in the others without the second part. An epoch ends a period, but for servers.
    """
    everyone = [made(0, 1, one, folder) for _ in range(workers)]
    modules = [it.flow.module for it in everyone]
    rule = one.optimizer
    more = {"momentum": rule.momentum, "nesterov": rule.nesterov}
    rules = [torch.optim.SGD(module.parameters(), lr=rule.lr, **more) for module in modules]
    for module in modules:
        module.load_state_dict(modules[0].state_dict())
    centre, in_period = [one.detach().clone() for one in modules[0].parameters()], 0
    for _ in range(STEPS):
        distances = [
            [
                RATE * (own.detach() - there) * (in_period == 0)
                for own, there in zip(it.parameters(), centre, strict=True)
            ]
            for it in modules
        ]
        _, ends_epoch = step_apart(everyone, rules)
        with torch.no_grad():
            for module, pulls in zip(modules, distances, strict=True):
                for own, by in zip(module.parameters(), pulls, strict=True):
                    own.sub_(by)
        centre = [one + sum(moved) for one, moved in zip(centre, zip(*distances, strict=True), strict=True)]
        in_period = 0 if ends_epoch and ends_with_epochs else (in_period + 1) % one.strategy.consistency.period
    names = list(dict(modules[0].named_parameters()))
    own = [{name: it.detach() for name, it in module.named_parameters()} for module in modules]
    return dict(zip(names, centre, strict=True)), own


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "every step, in shared memory": (EVERY_STEP, PLAIN, {"exchange": {"name": "allreduce", "route": "shared"}}),
    "every step, over the network": (EVERY_STEP, PLAIN, OVERLAPPED),
    "every third step, with momentum": (EVERY_3, NESTEROV, OVERLAPPED),
}


def train_cases(rank: int, world_size: int) -> dict[str, Trained]:
    return {
        name: trained(rank, world_size, saving(elastic(consistency, rule, strategy=strategy)), name)
        for name, (consistency, rule, strategy) in CASES.items()
    }


def saving(one: Session) -> Session:
    return replace(one, checkpoint={"every": f"{STEPS} steps"})


def saved(folder: Path) -> dict[str, Tensor]:
    checkpoints = Checkpoints(folder)
    weights = SavedWeights(checkpoints.path(STEPS), checkpoints.manifest(STEPS))
    return {one: weights.whole(one) for one in weights}


def test_centre_and_workers_are_those_of_the_published_recursion_step_for_step(workers, tmp_path):
    everyone = workers(3, train_cases)
    for name, (consistency, rule, strategy) in CASES.items():
        centre, own = recursion(elastic(consistency, rule, strategy=strategy), 3, tmp_path)
        kept = saved(workers.folder / str(workers.calls) / name)
        for parameter, value in centre.items():
            torch.testing.assert_close(kept[parameter], value, rtol=0, atol=ROUNDING, msg=f"{name}: {parameter}")
        assert not all(torch.equal(own[0][parameter], value) for parameter, value in centre.items())
        for found, expected in zip(everyone, own, strict=True):
            assert (found[name].outcome, len(found[name].rows)) == ("finished", STEPS)
            for parameter, value in expected.items():
                torch.testing.assert_close(found[name].parameters[parameter], value, rtol=0, atol=ROUNDING, msg=name)


SERVED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "every step": (EVERY_STEP, PLAIN),
    "every third step": (EVERY_3, NESTEROV),
}


def over_servers(name: str, steps: int = STEPS) -> Session:
    consistency, rule = SERVED[name]
    exchange = {"name": "server", "servers": 1}
    strategy = Strategy(workers=1, consistency=consistency, exchange=exchange, bucket_mb=4e-4)
    one = session("Exact", optimizer=rule, train={"steps": steps}, evaluate={"every": f"{STEPS} steps"})
    return replace(one, strategy=strategy)


def resumed_over_servers(rank: int, world_size: int, name: str) -> tuple[Kept | None, Kept | None, dict[str, float]]:
    """Without a stop, and as a run of half the steps that is resumed; the figures of what is saved."""
    whole = served(rank, world_size, over_servers(name), "whole")
    served(rank, world_size, over_servers(name, STEPS // 2), "halves")
    resumed = served(rank, world_size, over_servers(name), "halves")
    return whole, resumed, evaluate_run(RunDirectory(Path("runs/whole")), STEPS) if rank == 0 else {}


@pytest.mark.parametrize("name", [pytest.param("every step", marks=pytest.mark.slow), "every third step"])
def test_over_servers_one_worker_pulls_the_centre_as_published_and_a_resumed_run_equals_an_uninterrupted_one(
    workers, tmp_path, name
):
    whole, resumed, figures = workers(2, resumed_over_servers, name)[0]
    centre, own = recursion(over_servers(name), 1, tmp_path, ends_with_epochs=False)
    assert whole.outcome == resumed.outcome == "finished"
    assert whole.told("evaluated")[-1]["figures"] == pytest.approx(figures)  # the centre is what is measured and saved
    for parameter, value in centre.items():
        torch.testing.assert_close(whole.parameters[parameter], value, rtol=0, atol=ROUNDING)
        assert torch.equal(resumed.parameters[parameter], whole.parameters[parameter])
    assert not all(torch.equal(own[0][parameter], value) for parameter, value in centre.items())


def learn_apart(rank: int, world_size: int) -> Kept | None:
    """Two workers around two servers, which each goes to when it comes to it; pulls are encoded."""
    exchange = {"name": "server", "servers": 2}
    strategy = Strategy(workers=2, consistency={"name": "elastic", "period": 2}, codec="int8", exchange=exchange)
    one = session("Wide", of={"bits": 32}, optimizer=PLAIN, train={"steps": 40})
    return served(rank, world_size, replace(one, strategy=strategy))


@pytest.mark.slow  # four processes more
def test_over_servers_workers_that_come_when_they_like_learn(workers):
    first, second, *_ = workers(4, learn_apart)
    assert (first.run_outcome, second.outcome) == ("finished", "finished")
    rows = sorted(first.rows + second.rows, key=lambda row: row.ended_at)
    assert sum(row.loss for row in rows[-10:]) < 0.8 * sum(row.loss for row in rows[:10])


def quadratic(rate: float, momentum: float, turns: list[int]) -> tuple[list[float], list[float]]:
    """The centre after each worker's turn, of what is pulled as over servers, and by Algorithm 1 (EAMSGD: 2) by hand.

    Worker i minimises h_i (x - i)^2 / 2, h = 1, 3, with Nesterov momentum in the form of PyTorch.
    """
    workers, found = [], []
    served_values = torch.ones(1, dtype=torch.float64)
    for _ in range(2):
        module = torch.nn.Linear(1, 1, bias=False).double()
        torch.nn.init.ones_(module.weight)
        centre = Centre(module, RATE, 2)
        strategy = Strategy(workers=2, consistency=EVERY_STEP, exchange="server")
        layout = cut_network(strategy, module, 0, elementwise=True)
        beside = centre.beside(layout)
        memory = [Memory(*[torch.zeros(plan.shape.numel, dtype=torch.float64)] * 2) for plan in beside.plans]
        pulls = PushedPulls(beside.plans, memory, lambda _: None, chunk_mb=1, own=centre.own, part=RATE)
        rule = torch.optim.SGD(module.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0)
        workers.append((module, centre, beside.tensors["weight"], pulls, rule))
    x, v, by_hand, expected = [1.0, 1.0], [0.0, 0.0], 1.0, []
    for turn in turns:
        module, centre, values, pulls, rule = workers[turn]
        values.data.copy_(served_values)
        centre.arrived()
        pulls.begin()
        rule.zero_grad()
        ((1, 3)[turn] * (module.weight - turn).square().sum() / 2).backward()
        rule.step()
        pulls.complete()
        (slot,) = pulls.buckets.slots
        MeanRule(scaled=False).apply(0, [served_values], SliceUpdate([slot.view.flatten()], scale=7.0))
        found.append(served_values.item())
        pull, gradient = RATE * (x[turn] - by_hand), (1, 3)[turn] * (x[turn] - turn)
        v[turn] = momentum * v[turn] + gradient
        x[turn] -= rate * (gradient + momentum * v[turn] if momentum else gradient) + pull
        by_hand += pull
        expected.append(by_hand)
    return found, expected


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_quadratic_goes_as_published_when_two_workers_come_to_the_servers_in_any_order(momentum):
    found, expected = quadratic(0.05, momentum, [0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 1])
    assert found == pytest.approx(expected, rel=ROUNDING)
    assert len({*found}) > 8


def worker_of_a_loop(rank: int, world_size: int, attempt: int, folder: Path) -> Worker:
    script = Script(program="mine.py", strategy={"workers": world_size, "consistency": EVERY_STEP})
    recorder, pulse = Recorder(rank), SimpleNamespace(asked_to_end=False)
    drafts = DirectoryDrafts(Checkpoints(folder, Quick()), recorder, 3, keep_best=False)
    return worker_in(script, joined(attempt), recorder, pulse, drafts)


def begun(worker: Worker) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(1, 1, bias=False).double()
    torch.nn.init.ones_(model.weight)
    model, rule = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    worker.restore(model=model)
    return model, rule


def a_step(rank: int, model: torch.nn.Module, rule: torch.optim.Optimizer) -> None:
    rule.zero_grad()
    (model(torch.full((1, 1), rank + 1.0, dtype=torch.float64)) - 1).square().sum().backward()
    rule.step()


def loops(rank: int, world_size: int) -> tuple[list[float], float]:
    """A worker's parameter after each of six steps, saved and begun anew after the third; the centre after that one."""
    worker, found = worker_of_a_loop(rank, world_size, 0, Path("../loop")), []
    model, rule = begun(worker)
    for _ in range(3):
        a_step(rank, model, rule)
        found.append(model.weight.item())
    centre = worker.evaluate(lambda _: model.weight, torch.utils.data.TensorDataset(torch.zeros(6)), batch_size=3)
    worker.save(model=model)
    worker.close()
    worker = worker_of_a_loop(rank, world_size, 1, Path("../loop"))
    model, rule = begun(worker)
    for _ in range(3):
        a_step(rank, model, rule)
        found.append(model.weight.item())
    worker.close()
    return found, centre


def test_in_a_loop_of_ones_own_a_quadratic_goes_as_published_and_is_resumed_with_the_centre_and_each_own(workers):
    everyone, centre, own, measured = workers(2, loops), 1.0, [1.0, 1.0], 0.0
    for step in range(6):
        distances = [RATE * (one - centre) for one in own]
        # the loss (r x - 1)^2 is a sum over a batch of one sample for each of two workers
        own = [x - 0.1 * 2 * r * (r * x - 1) - by for r, x, by in zip((1, 2), own, distances, strict=True)]
        centre += sum(distances)
        assert [found[step] for found, _ in everyone] == pytest.approx(own, rel=1e-12)
        measured = centre if step == 2 else measured
    assert [found for _, found in everyone] == pytest.approx([measured] * 2, rel=1e-12)


def resumed(rank: int, world_size: int) -> tuple[Trained, Trained]:
    one = elastic(EVERY_3, NESTEROV, evaluate={"every": "4 steps"}, checkpoint={"every": "4 steps"})
    whole = trained(rank, world_size, one, "whole", disk=Quick())
    stopped = trained(rank, world_size, one, "stopped", disk=Quick(), until=lambda step: step >= 4)
    assert stopped.outcome == "stopped"
    again = trained(rank, world_size, one, "stopped", disk=Quick())
    return whole, replace(again, rows=[*stopped.rows, *again.rows], said=[*stopped.said, *again.said])


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit_where_each_worker_was(workers):
    for whole, again in workers(2, resumed):
        assert again.outcome == "finished"
        assert all(torch.equal(one, whole.parameters[name]) for name, one in again.parameters.items())
        assert again.losses == whole.losses
        assert again.metrics == whole.metrics


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        ({"consistency": {"name": "elastic", "rho": 0.6}}, "rho: is 0.6, and 2 workers together would pull the centre"),
        ({"consistency": {"name": "elastic", "rho": 0.0}}, "rho: is 0; accepted: above 0, up to 1 / workers"),
        ({"consistency": {"name": "elastic", "period": 0}}, "period: is 0; accepted: a whole number of steps, 1 or"),
        (
            {"codec": "auto"},
            "codec: is auto, which changes while the run trains, and with consistency=elastic what tra",
        ),
        ({"exchange": {"name": "allreduce", "behind": True}}, "exchange.behind has no effect with consistency=elastic"),
        ({"codec": "factors"}, "with consistency=elastic differences of parameters travel, which are no products"),
        ({"partition": "sharded"}, "with consistency=elastic each worker updates all parameters"),
    ],
)
def test_what_does_not_go_with_it_is_refused(strategy, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        elastic("elastic", strategy={"workers": 2, "consistency": "elastic", **strategy})
    assert sentence in str(refused.value)
