"""Local updates with a periodic mean: against one process that does by hand what all workers do, in 64 bits."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from torch import Tensor

from train._served import Kept, served
from train._training import OVERLAPPED, Trained, made, session, trained
from volary.errors import NotFinite
from volary.session import Session
from volary.session.spec import Strategy

ROUNDING = 1e-12
PLAIN = {"name": "sgd", "lr": 0.2}
MOMENTUM = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
# 41 samples, 10 a step: 3 workers have unequal shares, and the epoch's fifth step is of one sample, rank 0's
EVERY_4, EVERY_STEP = {"name": "local", "period": 4}, {"name": "local", "period": 1}
GROWING = {
    "name": "local",
    "period": 2,
    "after": 3,
    "doubles": 4,
    "most": 4,
}  # periods of 1, 1, 1, then 2, then 4 steps
DILOCO = {**EVERY_4, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}}
BEHIND = {"exchange": {"name": "allreduce", "route": "torch", "behind": True}}
ROUTES = {
    "shared": {"exchange": {"name": "allreduce", "route": "shared"}},
    "torch": OVERLAPPED,
    "ring": {"exchange": {"name": "allreduce", "route": "ring"}},
    "tree": {"exchange": {"name": "allreduce", "route": "tree"}},
}


def local(consistency: dict[str, Any], optimizer: dict[str, Any] = PLAIN, **strategy: Any) -> Session:
    return session("Exact", optimizer=optimizer, strategy={"consistency": consistency, **strategy})


def by_hand(
    one: Session, workers: int, folder: Path, *, behind: bool = False, served: bool = False
) -> dict[str, Tensor]:
    """Every worker's replica in turn: its own steps, and after each period the mean by samples of what changed.

    served: a worker's share of a batch is a run of its samples, and a period does not end with an epoch.
    """
    ranks = [made(0, 1, one, folder) for _ in range(workers)]
    feeds = [made(0, 1, one, folder).coordinator.rank.data.feed for _ in ranks]
    modules = [it.flow.module for it in ranks]
    rules = [torch.optim.SGD(module.parameters(), **sgd_of(one)) for module in modules]
    equal = [parameter.detach().clone() for parameter in modules[0].parameters()]
    for module in modules:
        put(module, equal)
    outer = one.strategy.consistency.outer
    kept = [torch.nn.Parameter(one.clone()) for one in equal]
    outer_rule = outer and torch.optim.SGD(kept, lr=outer.lr, momentum=outer.momentum, nesterov=outer.nesterov)

    def stepped(equal: list[Tensor], mean: list[Tensor]) -> list[Tensor]:
        if outer is None:
            return [a + b for a, b in zip(equal, mean, strict=True)]
        for parameter, a, b in zip(kept, equal, mean, strict=True):
            parameter.data.copy_(a)
            parameter.grad = -b
        outer_rule.step()
        return [parameter.detach().clone() for parameter in kept]

    travelling: list[Tensor] | None = None
    numbers, begun = [0] * workers, [equal] * workers
    model, in_period, begun_at = one.strategy.consistency, 0, 0
    for step in count():
        if feeds[0].ended:
            break
        for rank, rule in enumerate(rules):
            batch = next(feeds[rank])
            size = batch.count
            own = slice(rank, None, workers)
            if served:
                sharing = workers if size >= 2 * workers else max(1, size // 2)  # nobody has a single sample of more
                own = slice(size * rank // sharing, size * (rank + 1) // sharing if rank < sharing else 0)
            inputs, targets = batch.inputs[own], batch.targets[own]
            if len(inputs):
                rule.param_groups[0]["lr"] = one.optimizer.lr * one.schedule.factor(step, 20)
                rule.zero_grad()
                ranks[rank].flow(inputs, targets).backward()
                rule.step()
            numbers[rank] += len(inputs)
        in_period += 1
        if in_period < length(model, begun_at) and (served or not batch.ends_epoch) and not feeds[0].ended:
            continue
        changed = [minus(values(module), start) for module, start in zip(modules, begun, strict=True)]
        if travelling is not None:
            equal = stepped(equal, travelling)
        elif behind:
            equal = begun[0]
        mean = [
            sum(n / sum(numbers) * d[place] for n, d in zip(numbers, changed, strict=True))
            for place in range(len(equal))
        ]
        if behind:
            travelling = mean
            for module, own in zip(modules, changed, strict=True):
                put(module, [a + b for a, b in zip(equal, own, strict=True)])
        else:
            equal = stepped(equal, mean)
            for module in modules:
                put(module, equal)
        begun, numbers, in_period = [values(module) for module in modules], [0] * workers, 0
        begun_at = step + 1
    if travelling is not None:
        equal = stepped(equal, travelling)
    return dict(zip(dict(modules[0].named_parameters()), equal, strict=True))


def length(model: Any, begun: int) -> int:
    """Steps of the period that begins after so many of the run."""
    if begun < model.after:
        return 1
    doubled = 2 ** ((begun - model.after) // model.doubles) if model.doubles else 1
    return min(model.period * doubled, model.most or model.period)


def sgd_of(one: Session) -> dict[str, Any]:
    rule = one.optimizer
    return {"lr": rule.lr, "momentum": rule.momentum, "weight_decay": rule.weight_decay}


def values(module: torch.nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def minus(ones: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [a - b for a, b in zip(ones, others, strict=True)]


def put(module: torch.nn.Module, new: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), new, strict=True):
            parameter.copy_(value)


def assert_equal(found: Trained, expected: dict[str, Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found.parameters[name], value, rtol=0, atol=ROUNDING, msg=name)


def train_every_step(rank: int, world_size: int) -> dict[str, Trained]:
    found = {"bsp": trained(rank, world_size, local({"name": "bsp"}), "bsp")}
    return found | {
        name: trained(rank, world_size, local(EVERY_STEP, **strategy), name) for name, strategy in ROUTES.items()
    }


@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_with_a_period_of_one_step_and_plain_sgd_it_is_bsp_over_every_route(workers, world_size):
    for found in workers(world_size, train_every_step):
        for name in ROUTES:
            assert_equal(found[name], found["bsp"].parameters)
            assert found[name].outcome == "finished"
            losses, expected = found[name].losses, found["bsp"].losses
            assert losses == pytest.approx(expected, rel=1e-6)


PERIODS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "in shared memory": (EVERY_4, PLAIN, ROUTES["shared"]),
    "over the network": (EVERY_4, PLAIN, OVERLAPPED),
    "with momentum": (EVERY_4, MOMENTUM, OVERLAPPED),
    "with an outer rule": (DILOCO, MOMENTUM, OVERLAPPED),
    "in periods that grow": (GROWING, PLAIN, OVERLAPPED),
    "a period behind": (EVERY_4, PLAIN, BEHIND),
    "a period behind, with momentum and an outer rule": (DILOCO, MOMENTUM, BEHIND),
}


def train_periods(rank: int, world_size: int) -> dict[str, Trained]:
    return {
        name: trained(rank, world_size, local(consistency, rule, **strategy), name)
        for name, (consistency, rule, strategy) in PERIODS.items()
    }


def test_what_it_does_is_what_one_does_by_hand(workers, tmp_path):
    everyone = workers(3, train_periods)
    for name, (consistency, rule, strategy) in PERIODS.items():
        expected = by_hand(local(consistency, rule, **strategy), 3, tmp_path, behind="behind" in name)
        for found in everyone:
            kept, first = found[name], everyone[0][name]
            assert (kept.outcome, len(kept.rows)) == ("finished", 20), "a row for each step"
            assert_equal(kept, expected)
            same = [torch.equal(one, first.parameters[parameter]) for parameter, one in kept.parameters.items()]
            assert all(same), "replicas are equal, bit for bit"


def train_few_exchanges(rank: int, world_size: int) -> dict[str, list[int]]:
    found = {}
    for name, consistency in {"bsp": {"name": "bsp"}, "local": EVERY_4}.items():
        found[name] = [row.sent_bytes for row in trained(rank, world_size, local(consistency, **OVERLAPPED), name).rows]
    return found


def test_nothing_is_sent_between_two_means(workers):
    for found in workers(2, train_few_exchanges):
        sent = [bytes_ > 0 for bytes_ in found["local"][1:]]
        assert sent == [step % 5 in (4, 0) for step in range(2, 21)], "after 4 steps, and at the end of an epoch of 5"
        assert sum(found["local"]) < sum(found["bsp"]) / 2


OVER_SERVERS: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "every step": (EVERY_STEP, PLAIN, {"name": "step", "every": 3}),  # of batches, the last of an epoch a small one
    "every four": (EVERY_4, MOMENTUM, "constant"),
    "with an outer rule": (DILOCO, MOMENTUM, "constant"),
    "in periods that grow": (GROWING, PLAIN, "constant"),
}


def over_servers(name: str, workers: int) -> Session:
    consistency, rule, schedule = OVER_SERVERS[name]
    return replace(
        session("Exact", optimizer=rule, schedule=schedule),
        strategy=Strategy(
            workers=workers, consistency=consistency, exchange={"name": "server", "servers": 1}, bucket_mb=4e-4
        ),
    )


def train_over_servers(rank: int, world_size: int) -> dict[str, Kept | None]:
    return {name: served(rank, world_size, over_servers(name, 2), name.replace(" ", "-")) for name in OVER_SERVERS}


@pytest.mark.slow  # over all-reduce above
def test_over_servers_it_is_what_one_does_by_hand(workers, tmp_path):
    found = workers(3, train_over_servers)[0]
    for name in OVER_SERVERS:
        assert found[name].outcome == found[name].run_outcome == "finished"
        expected = by_hand(
            replace(over_servers(name, 2), strategy=Strategy(consistency=OVER_SERVERS[name][0])),
            2,
            tmp_path,
            served=True,
        )
        for parameter, value in expected.items():
            torch.testing.assert_close(
                found[name].parameters[parameter], value, rtol=0, atol=ROUNDING, msg=f"{name}: {parameter}"
            )


LOSSY: dict[str, dict[str, Any]] = {
    "as it is": {},
    "onebit": {"codec": "onebit"},
    "halved": {"codec": "fp16"},
    "after a warm-up": {"codec": {"name": "onebit", "warm_up_samples": 60}},
    "chosen": {"codec": {"name": "auto", "allow": ["onebit"]}},
    "by seconds": {"consistency": {"name": "local", "seconds": 0.02}},
    "batches that grow": {},
}


def learn(rank: int, world_size: int) -> dict[str, Trained]:
    found = {}
    for name, strategy in LOSSY.items():
        one = session(
            "Wide",
            of={"bits": 32, "width": 64},
            optimizer={"name": "sgd", "lr": 0.01, "momentum": 0.9},
            train={"steps": 60},
            batch={"name": "auto", "trial": 1.0} if "grow" in name else "fixed",
            strategy={"consistency": EVERY_4, **OVERLAPPED, **strategy},
        )
        found[name] = trained(rank, world_size, one, name)
    return found


@pytest.mark.slow  # that it is what one does by hand is above; codecs by themselves are in tests/codec
def test_it_learns_with_codecs_by_the_clock_and_with_batches_that_grow(workers):
    first, second = workers(2, learn)
    for name in LOSSY:
        losses = first[name].losses
        assert first[name].outcome == "finished"
        assert mean(losses[-10:]) < mean(losses[:5]) / 2, name
        same = [torch.equal(one, second[name].parameters[key]) for key, one in first[name].parameters.items()]
        assert all(same), name
    sent = {name: sum(row.sent_bytes for row in kept.rows) for name, kept in first.items()}
    assert sent["onebit"] < sent["after a warm-up"] < sent["halved"] < sent["as it is"]


def spoilt(rank: int, world_size: int, on_nonfinite: str) -> Trained | str:
    source = {"name": "spoilt_points", "spoilt": [7]}
    one = session(
        "Exact", source=source, optimizer=PLAIN, train={"steps": 20, "on_nonfinite": on_nonfinite},
        strategy={"consistency": EVERY_4, **OVERLAPPED},
    )  # fmt: skip
    try:
        return trained(rank, world_size, one, on_nonfinite)
    except NotFinite as told:
        return str(told)


def test_a_loss_that_is_no_number_ends_the_run_or_leaves_out_the_period_of_all(workers):
    for said in workers(2, spoilt, "stop"):
        assert "is NaN or infinite" in said
    first, second = workers(2, spoilt, "skip")
    assert first.outcome == second.outcome == "finished"
    assert len(first.events("skipped")) == 4, "once an epoch"
    assert all(torch.isfinite(one).all() for one in first.parameters.values())
    assert all(torch.equal(one, second.parameters[name]) for name, one in first.parameters.items())


def resumed(rank: int, world_size: int) -> tuple[Trained, Trained]:
    one = local({**DILOCO, "period": 2, "doubles": 5, "most": 3}, MOMENTUM, **BEHIND)
    one = replace(one, checkpoint={"every": "4 steps"})
    whole = trained(rank, world_size, one, "whole")
    stopped = trained(rank, world_size, one, "stopped", until=lambda step: step >= 11)
    assert (stopped.outcome, len(stopped.rows)) == ("stopped", 13), "after its period"
    return whole, trained(rank, world_size, one, "stopped")


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit_with_each_momentum_and_the_outer_one(workers):
    for whole, again in workers(2, resumed):
        assert again.outcome == "finished"
        assert all(torch.equal(one, whole.parameters[name]) for name, one in again.parameters.items())
        assert again.losses == whole.losses[13:]
