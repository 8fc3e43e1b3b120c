"""Gossip: against one process that does by hand what all workers do, in 64 bits; the one model is the mean of all."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from _workers import alone, joined
from train._by_hand import step_apart
from train._own_workers import worker_in
from train._training import OVERLAPPED, Trained, looked_at, made, session, started, trained
from volary.comm.sums.partner_means import PartnerMeans
from volary.comm.sums.route import BufferShape
from volary.errors import BadInput, SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Session
from volary.session.script import Script
from volary.train.evaluation import totals
from volary.train.loop import train
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.weights import SavedWeights, load_weights

ROUNDING, CHECKPOINTS = 1e-12, "checkpoints"
PLAIN = {"name": "sgd", "lr": 0.2}
MOMENTUM = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
RING = {"name": "gossip", "graph": "ring"}
NOLOCO = {"name": "gossip", "graph": "pairs", "period": 2, "momentum": 0.5, "lr": 0.7, "gamma": 0.9}
BEHIND = {"exchange": {"name": "allreduce", "route": "torch", "behind": True}}


def gossip(consistency: Any = "gossip", optimizer: dict[str, Any] = PLAIN, **more: Any) -> Session:
    more.setdefault("train", {"steps": 12})
    strategy = {"consistency": consistency, **more.pop("strategy", {})}
    return session("Exact", optimizer=optimizer, strategy=strategy, **more)


def by_hand(
    one: Session, workers: int, folder: Path, partners: list[list[int]] | None, *, behind: bool
) -> list[dict[str, Tensor]]:
    """Each worker's parameters in the end. partners: step by step, how many places before a worker its partners are.

    None of them: those that the model draws, which tests/consistency looks at.
    """
    model = one.strategy.consistency
    everyone = [made(0, 1, one, folder) for _ in range(workers)]
    modules = [it.flow.module for it in everyone]
    rules = [torch.optim.SGD(module.parameters(), **sgd_of(one)) for module in modules]
    for module in modules:
        module.load_state_dict(modules[0].state_dict())
    corrections: list[list[Tensor]] = []
    slow = [[one.detach().clone() for one in module.parameters()] for module in modules]
    deltas = [[torch.zeros_like(one) for one in own] for own in slow]
    begun = 0
    for step in range(one.train.steps):
        _, ends_epoch = step_apart(everyone, rules)
        if step + 1 - begun < model.period and not ends_epoch:
            continue
        if behind:
            add(modules, corrections)
        sent = [[one.detach().clone() for one in module.parameters()] for module in modules]
        sources = [[rank, *model.partners(begun, rank, workers)] for rank in range(workers)]
        if partners is not None:
            sources = [[rank, *(rank - place for place in partners[step % len(partners)])] for rank in range(workers)]
        before = slow  # NoLoCo; without momentum, with lr and gamma 1, means of what was sent
        moved = [[a - b for a, b in zip(*both, strict=True)] for both in zip(sent, before, strict=True)]

        def mean_of(values: list[list[Tensor]], of: list[int], n: int) -> Tensor:
            return sum(values[it % workers][n] for it in of) / len(of)

        deltas = [
            [
                model.momentum * deltas[rank][n]
                + model.lr * mean_of(moved, of, n)
                - model.gamma * (before[rank][n] - mean_of(before, of, n))
                for n in range(len(sent[0]))
            ]
            for rank, of in enumerate(sources)
        ]
        slow = [[a + b for a, b in zip(*both, strict=True)] for both in zip(before, deltas, strict=True)]
        corrections = [[a - b for a, b in zip(*both, strict=True)] for both in zip(slow, sent, strict=True)]
        begun = step + 1
        if not behind:
            add(modules, corrections)
    if behind:
        add(modules, corrections)
    return [{name: one.detach() for name, one in module.named_parameters()} for module in modules]


@torch.no_grad()
def add(modules: list[torch.nn.Module], corrections: list[list[Tensor]]) -> None:
    for module, all_of_it in zip(modules, corrections, strict=bool(corrections)):
        for parameter, correction in zip(module.parameters(), all_of_it, strict=True):
            parameter.add_(correction)


def sgd_of(one: Session) -> dict[str, Any]:
    rule = one.optimizer
    return {"lr": rule.lr, "momentum": rule.momentum, "weight_decay": rule.weight_decay}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor], of: str) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=ROUNDING, msg=f"{of}: {name}")


def train_pair(rank: int, world_size: int) -> dict[str, Trained]:
    source = {"name": "points", "samples": 40}  # shares are equal
    sessions = {
        "bsp": gossip("bsp", source=source),
        "auto": gossip(source=source),
        "ring": gossip(source=source, strategy={"exchange": {"name": "allreduce", "route": "ring"}, "bucket_mb": 1e-4}),
        "both neighbours, who are one": gossip(RING, source=source),
    }
    return {name: trained(rank, world_size, one, name) for name, one in sessions.items()}


def test_two_workers_with_plain_sgd_and_equal_shares_are_bsp_whatever_the_route(workers):
    for found in workers(2, train_pair):
        expected = found.pop("bsp")
        for name, one in found.items():
            assert_equal(one.parameters, expected.parameters, name)
            assert one.losses == pytest.approx(expected.losses, rel=1e-6)
            assert not one.notes("route") or "parameters between partners, votes over " in one.notes("route")[0]


CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any], list[list[int]] | None]] = {
    "one neighbour, another one each step": ("gossip", PLAIN, {}, [[1], [2]]),
    "both": (RING, PLAIN, OVERLAPPED, [[1, -1]]),
    "with momentum": ("gossip", MOMENTUM, OVERLAPPED, [[1], [2]]),
    "a step behind": ("gossip", MOMENTUM, BEHIND, [[1], [2]]),
    "pairs, every other step": ({"name": "gossip", "graph": "pairs", "period": 2}, PLAIN, OVERLAPPED, None),
    "pairs, with momentum of their means, a period behind": (NOLOCO, MOMENTUM, BEHIND, None),
    "a ring drawn anew": ({"name": "gossip", "graph": "random"}, PLAIN, OVERLAPPED, None),
}


def train_cases(rank: int, world_size: int) -> dict[str, Trained]:
    return {
        name: trained(rank, world_size, gossip(graph, rule, strategy=strategy), name)
        for name, (graph, rule, strategy, _) in CASES.items()
    }


def test_what_it_does_is_what_one_does_by_hand(workers, tmp_path):
    everyone = workers(3, train_cases)
    for name, (graph, rule, strategy, partners) in CASES.items():
        one = gossip(graph, rule, strategy=strategy)
        expected = by_hand(one, 3, tmp_path, partners, behind="behind" in name)
        for rank, found in enumerate(everyone):
            assert (found[name].outcome, len(found[name].rows)) == ("finished", 12)
            assert_equal(found[name].parameters, expected[rank], f"{name}, rank {rank}")


def saved_and_evaluated(rank: int, world_size: int) -> tuple[Trained, list[float]]:
    one = gossip(train={"steps": 3}, evaluate={"every": "3 steps"}, checkpoint={"every": "3 steps"})
    it = made(rank, world_size, one)
    with started(it):
        kept = looked_at(it, train(it))
    if rank:
        return kept, []
    other = made(0, 1, one, "unused")
    load_weights(other.flow.module, saved(Path(CHECKPOINTS).absolute()))
    found, _, _ = totals(other.evaluating, other.coordinator.rank.data.validation(), other.device)
    return kept, list(other.flow.criterion.figures(found).values())


def saved(folder: Path) -> SavedWeights:
    checkpoints = Checkpoints(folder)
    step = checkpoints.steps()[-1]
    return SavedWeights(checkpoints.path(step), checkpoints.verify(step))


def test_what_is_saved_and_evaluated_is_the_mean_of_all_and_training_goes_on_from_each_worker_s_own(workers):
    everyone = workers(3, saved_and_evaluated)
    replicas = [kept.parameters for kept, _ in everyone]
    mean_of_all = saved(workers.folder / "1" / CHECKPOINTS)
    assert differ(*replicas)
    for name in replicas[0]:
        torch.testing.assert_close(mean_of_all.whole(name), sum(one[name] for one in replicas) / 3)
    ((_, figures),) = everyone[0][0].metrics
    assert list(figures.values()) == pytest.approx(everyone[0][1])


def differ(first: dict[str, Tensor], *others: dict[str, Tensor]) -> bool:
    return all(any(not torch.equal(one, other[name]) for name, one in first.items()) for other in others)


def resumed(rank: int, world_size: int) -> tuple[Trained, Trained]:
    one = gossip(NOLOCO, MOMENTUM, strategy=BEHIND, checkpoint={"every": "4 steps"})
    whole = trained(rank, world_size, one, "whole")
    stopped = trained(rank, world_size, one, CHECKPOINTS, until=lambda step: step >= 8)
    assert (stopped.outcome, len(stopped.rows)) == ("stopped", 9), "after its period: an epoch has 5 steps"
    return whole, trained(rank, world_size, one, CHECKPOINTS)


def with_others(rank: int, world_size: int, folder: Path) -> list[bool]:
    """Whether each parameter is what is in the checkpoint for whoever asks."""
    it = made(rank, world_size, gossip(optimizer=MOMENTUM, train={"steps": 24}), folder)
    it.coordinator.saver.resume()
    with started(it):
        return [torch.equal(mine, saved(folder).whole(name)) for name, mine in looked_at(it).parameters.items()]


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit_and_with_fewer_workers_all_begin_with_the_mean(workers):
    everyone = workers(3, resumed)
    for whole, again in everyone:
        assert again.outcome == "finished"
        assert all(torch.equal(one, whole.parameters[name]) for name, one in again.parameters.items())
        assert again.losses == whole.losses[9:]
    assert differ(*(whole.parameters for whole, _ in everyone))
    assert all(map(all, workers(2, with_others, workers.folder / "1" / CHECKPOINTS)))


def spoilt(rank: int, world_size: int) -> Trained:
    source = {"name": "spoilt_points", "spoilt": [7]}
    return trained(rank, world_size, gossip(source=source, train={"steps": 10, "on_nonfinite": "skip"}))


def test_a_worker_whose_loss_is_no_number_leaves_out_its_own_update(workers):
    for found in workers(2, spoilt):
        assert found.outcome == "finished"
        assert all(one.isfinite().all() for one in found.parameters.values())
        if events := found.events("skipped"):
            assert len(events) == 2, "once an epoch"


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"exchange": "server"}, "strategy.consistency: is gossip, and with exchange=server workers send to servers"),
        ({"exchange": {"name": "allreduce", "route": "shared"}}, "strategy.consistency: is gossip, and with exchange."),
        ({"codec": "onebit"}, "strategy.codec: is onebit, and with consistency=gossip parameters travel"),
        ({"codec": "factors"}, "strategy.codec: is factors, and with consistency=gossip parameters travel"),
        ({"consistency": {**NOLOCO, "momentum": 1.0}}, "momentum: is 1; accepted: from 0 to below 1"),
        ({"consistency": {**NOLOCO, "lr": 0.0}}, "lr: is 0; accepted: above 0"),
        ({"consistency": {**NOLOCO, "gamma": 1.5}}, "gamma: is 1.5, and with momentum=0.5 and graph=pairs copies"),
        ({"consistency": {**NOLOCO, "graph": "exponential"}}, "momentum, lr or gamma is given, and with graph=expon"),
    ],
)  # fmt: skip
def test_what_it_cannot_do_is_refused_in_a_sentence(strategy, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        gossip(strategy={"workers": 2, **strategy})


def worker_of_a_loop(rank: int, world_size: int, attempt: int, folder: Path) -> Worker:
    script = Script(program="mine.py", strategy={"workers": world_size, "consistency": "gossip"})
    recorder, pulse = Recorder(rank), SimpleNamespace(asked_to_end=False)
    drafts = DirectoryDrafts(Checkpoints(folder), recorder, 3, keep_best=False)
    return worker_in(script, joined(attempt), recorder, pulse, drafts)


def loop_that_saves(rank: int, world_size: int) -> tuple[Tensor, Tensor, float]:
    """Its parameter after three steps, before and after it was measured and saved; what was measured."""
    worker = worker_of_a_loop(rank, world_size, 0, Path(f"../{CHECKPOINTS}"))
    model = torch.nn.Linear(1, 1, bias=False).double()
    model, rule = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    worker.restore(model=model)
    for _ in range(3):
        rule.zero_grad()
        model(torch.full((1, 1), rank + 1.0, dtype=torch.float64)).square().sum().backward()
        rule.step()
    before = model.weight.detach().clone()
    found = worker.evaluate(lambda _: model.weight, torch.utils.data.TensorDataset(torch.zeros(6)), batch_size=3)
    worker.save(model=model)
    with pytest.raises(BadInput, match=r"given a second model, or one again, and workers' parameters differ"):
        worker.distribute(torch.nn.Linear(1, 1))
    worker.close()
    return before, model.weight.detach().clone(), found


def loops_that_resume(rank: int, world_size: int, folder: Path) -> list[Tensor]:
    """Parameters with which two loops begin: one distributes its model before it restores it, one after."""
    found = []
    for attempt, order in enumerate([("distribute", "restore"), ("restore", "distribute")], 1):
        worker = worker_of_a_loop(rank, world_size, attempt, folder)
        model = torch.nn.Linear(1, 1, bias=False).double()
        for call in order:
            worker.distribute(model) if call == "distribute" else worker.restore(model=model)
        worker.close()
        found.append(model.weight.detach().clone())
    return found


def test_in_a_loop_of_one_s_own_the_mean_is_measured_and_saved_and_each_worker_goes_on_from_its_own(workers):
    everyone = workers(3, loop_that_saves)
    own = [before for before, *_ in everyone]
    assert len({one.item() for one in own}) == 3
    mean_of_all = sum(own) / 3
    (folder,) = workers.folder.rglob(CHECKPOINTS)
    torch.testing.assert_close(saved(folder).whole("weight"), mean_of_all)
    for before, after, found in everyone:
        assert torch.equal(before, after)
        assert found == pytest.approx(mean_of_all.item())
    assert workers(3, loops_that_resume, folder) == [[one, one] for one in own]
    assert workers(2, loops_that_resume, folder) == [[saved(folder).whole("weight")] * 2] * 2


def test_parameters_on_an_accelerator_are_refused_in_a_sentence():
    elsewhere = BufferShape(1, torch.float32, torch.device("meta"))
    with pytest.raises(SettingError, match=r"are taken on the processor, and parameters are on meta; accepted: train"):
        PartnerMeans(alone(), [elsewhere], lambda rank: (1,))


def learn(rank: int, world_size: int) -> dict[str, Trained]:
    rule, length = {"name": "sgd", "lr": 0.01, "momentum": 0.9}, {"steps": 60}
    of = {"bits": 32, "width": 64}
    return {
        str(graph): trained(
            rank,
            world_size,
            session("Wide", of=of, optimizer=rule, train=length, strategy={"consistency": graph, **strategy}),
            f"{number}",
        )
        for number, (graph, strategy) in enumerate([("gossip", {}), (RING, {}), ({"name": "gossip"}, BEHIND)])
    }


@pytest.mark.slow  # trains three times with four workers
def test_four_workers_learn_and_stay_near_each_other(workers):
    everyone = workers(4, learn)
    for graph, found in everyone[0].items():
        losses = found.losses
        assert mean(losses[-10:]) < mean(losses[:5]) / 2, graph
        for name, values in found.parameters.items():
            apart = torch.stack([other[graph].parameters[name] for other in everyone]).std(0).norm()
            assert apart < 0.1 * values.norm(), (graph, name)
