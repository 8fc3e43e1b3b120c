"""Averages of weights are kept by whoever updates the weights, in every strategy, and are resumed with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from train._served import served
from train._training import Quick, made, session, started, trained
from train.test_served import over
from volary.errors import RunError
from volary.run.checkpoints import Checkpoints
from volary.session import Session
from volary.session.values.period import Period
from volary.train.averages import ROOM
from volary.train.averages.ema import Ema
from volary.train.averages.swa import Swa
from volary.train.evaluation import totals
from volary.train.lockstep.lockstep_data import ValidationBatches
from volary.train.loop import train
from volary.train.model import build_model
from volary.train.state.optimizer_state import load_averages
from volary.train.state.weights import SavedWeights, load_weights

STEPS = 12  # an epoch has five
EMA, SWA = {"name": "ema", "decay": 0.8}, {"name": "swa", "start": "4 steps", "every": "2 steps"}
ADAM = {"name": "adam", "lr": 0.02}
RING = {"name": "allreduce", "route": "ring"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "as sums arrive": {"exchange": RING},
    "level 1": {"exchange": RING, "partition": "sharded"},
    "level 2 in shared memory": {
        "exchange": {"name": "allreduce", "route": "shared"},
        "partition": {"name": "sharded", "level": 2},
    },
    "level 3": {"exchange": RING, "partition": {"name": "sharded", "level": 3}},
    "tensor": {"partition": "tensor"},
    "pipeline": {"partition": "pipeline"},
    "hybrid": {"partition": "hybrid"},
}
MESHES: dict[str, dict[str, Any]] = {
    "tensor": {"partition": {"name": "mesh", "axes": {"data": 2, "tensor": 2}}},
    "pipeline": {"partition": {"name": "mesh", "axes": {"data": 2, "pipeline": 2}}},
    "hybrid": {"partition": {"name": "mesh", "axes": {"data": 2, "hybrid": 2}}},
    "shares of parameters": {
        "exchange": RING,
        "partition": {"name": "mesh", "axes": {"data": 2, "sharded": {"workers": 2, "level": 3}}},
    },
    "shares in shared memory": {
        "exchange": {"name": "allreduce", "route": "shared"},
        "partition": {"name": "mesh", "axes": {"data": 2, "sharded": 2}},
    },
}


APART: dict[str, dict[str, Any]] = {  # each worker updates weights of its own, and what enters is what they agree on
    "local": {"consistency": {"name": "local", "period": 2}},
    "outer rule": {"consistency": {"name": "local", "period": 3, "outer": {"name": "sgd", "lr": 0.7, "momentum": 0.9}}},
    "fragments": {"consistency": {"name": "local", "period": 2, "fragments": 2}},
    "elastic": {"consistency": {"name": "elastic", "period": 2}},
    "gossip": {"consistency": "gossip"},
}


def averaged(average: dict[str, Any], strategy: dict[str, Any] | None = None, **train: Any) -> Session:
    train = {"steps": STEPS, "average": average, **train}
    return session("Deep", strategy=strategy or {}, optimizer=ADAM, train=train)


def in_checkpoint(folder: Path, step: int = STEPS) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The averages and the weights in it."""
    checkpoints, module = Checkpoints(folder.absolute()), build_model(averaged(EMA), torch.device("cpu")).module
    found, manifest = checkpoints.path(step), checkpoints.manifest(step)
    load_weights(module, SavedWeights(found, manifest))
    raw = {name: one.clone() for name, one in module.state_dict().items()}
    load_averages(module, found, manifest)
    return {name: one.clone() for name, one in module.state_dict().items()}, raw


def loss_of(parameters: dict[str, Tensor]) -> float:
    """The loss of the network with these, on all validation data."""
    model = build_model(averaged(EMA), torch.device("cpu"))
    model.module.load_state_dict(parameters)
    flow = model.flow("evaluate")
    found, _, _ = totals(flow, ValidationBatches(model, report=lambda *_: None)(), torch.device("cpu"))
    return flow.figures(found)["loss"]


def by_torch(average: dict[str, Any]) -> dict[str, Tensor]:
    """The result of torch's own averages, beside the same updates on one device."""
    its = made(0, 1, averaged({"name": "none"}), "by torch")
    decay = average.get("decay")
    beside = AveragedModel(its.flow.module, multi_avg_fn=get_ema_multi_avg_fn(decay) if decay else None)
    complete, coordinator = its.coordinator.complete, its.coordinator

    def then(task: Any) -> None:
        complete(task)
        done = its.recorder.step
        if average["name"] == "ema" or (done > 4 and done % 2 == 0):
            beside.update_parameters(its.flow.module)

    coordinator.complete = then
    with started(its):
        train(its)
    return dict(beside.module.state_dict())


@pytest.mark.parametrize("average", [EMA, SWA], ids=["ema", "swa"])
def test_an_average_is_torch_s(average):
    trained(0, 1, averaged(average), "it", disk=Quick())
    found, raw = in_checkpoint(Path("it"))
    for name, one in by_torch(average).items():
        torch.testing.assert_close(found[name], one, rtol=1e-5, atol=1e-6)
        assert not torch.equal(raw[name], one)


def train_all(
    rank: int, size: int, strategies: Mapping[str, dict[str, Any]] = STRATEGIES
) -> list[dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]]]:
    """By name the averages and the weights in the end, of whole runs and of resumed ones."""
    for name, strategy in strategies.items():
        one = averaged({**EMA, "evaluate": True}, strategy | {"workers": size})
        one = replace(one, evaluate={"every": f"{STEPS // 2} steps"})
        measured = trained(rank, size, one, f"{name} whole", disk=Quick()).metrics
        if rank == 0:
            average, _ = in_checkpoint(Path(f"{name} whole"))
            assert measured[-1][1]["loss"] == pytest.approx(loss_of(average), rel=1e-5), name
        trained(rank, size, one, f"{name} resumed", disk=Quick(), until=lambda step: step >= 5)
        trained(rank, size, one, f"{name} resumed", disk=Quick())
    if rank:
        return []
    return [{name: in_checkpoint(Path(f"{name} {which}")) for name in strategies} for which in ("whole", "resumed")]


def judge_all(
    whole: dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]],
    resumed: dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]],
) -> None:
    trained(0, 1, averaged(EMA), "alone", disk=Quick())
    alone, _ = in_checkpoint(Path("alone"))
    for name, (average, raw) in whole.items():
        torch.testing.assert_close(average, alone, rtol=1e-4, atol=1e-5)
        again, again_raw = resumed[name]
        assert all(torch.equal(again[key], average[key]) for key in average), name
        assert all(torch.equal(again_raw[key], raw[key]) for key in raw), name


def test_workers_keep_the_average_of_one_device_and_resume_it_bit_for_bit(workers):
    judge_all(*workers(2, train_all)[0])


@pytest.mark.slow  # whole runs of four workers
def test_so_do_replicas_that_workers_hold_together(workers):
    judge_all(*workers(4, train_all, MESHES)[0])


def beside(rank: int, size: int, name: str) -> dict[str, Tensor]:
    """Torch's average of what all workers agree on after each contribution, by name."""
    its = made(rank, size, averaged({"name": "none"}, APART[name] | {"workers": size}), f"{name} beside", disk=Quick())
    complete, coordinator = its.coordinator.complete, its.coordinator
    average = AveragedModel(its.flow.module, multi_avg_fn=get_ema_multi_avg_fn(EMA["decay"]))

    def then(task: Any) -> None:
        complete(task)
        with its.replica.consensus():
            average.update_parameters(its.flow.module)

    coordinator.complete = then
    with started(its):
        train(its)
    return dict(average.module.state_dict())


def train_apart(rank: int, size: int, names: Sequence[str]) -> dict[str, Any]:
    found = {}
    for name in names:
        one = averaged({**EMA, "evaluate": True}, APART[name] | {"workers": size})
        one = replace(one, evaluate={"every": f"{STEPS} steps"})
        measured = trained(rank, size, one, f"{name} whole", disk=Quick()).metrics
        trained(rank, size, one, f"{name} resumed", disk=Quick(), until=lambda step: step >= 5)
        trained(rank, size, one, f"{name} resumed", disk=Quick())
        by_hand = beside(rank, size, name)
        found[name] = (
            measured,
            by_hand,
            *(in_checkpoint(Path(f"{name} {which}")) for which in ("whole", "resumed") if not rank),
        )
    return found


def judge_apart(found: dict[str, Any]) -> None:
    for name, (measured, by_hand, (average, raw), (again, again_raw)) in found.items():
        assert [step for step, _ in measured] == [STEPS]
        assert measured[0][1]["loss"] == pytest.approx(loss_of(average), rel=1e-5), name
        for key, values in by_hand.items():
            if name != "fragments":  # of which each enters when it is exchanged
                torch.testing.assert_close(average[key], values, rtol=1e-4, atol=1e-5, msg=f"{name}: {key}")
            assert not torch.equal(raw[key], average[key])
            assert torch.equal(again[key], average[key]) and torch.equal(again_raw[key], raw[key]), f"{name}: {key}"


def test_of_workers_with_weights_of_their_own_the_average_is_of_the_one_model_that_they_are(workers):
    judge_apart(workers(2, train_apart, ("local", "gossip"))[0])


@pytest.mark.slow  # the same with the other ways to agree
def test_so_it_is_however_they_agree(workers):
    judge_apart(workers(3, train_apart, tuple(APART))[0])


def over_servers(rank: int, size: int) -> tuple[dict[str, Tensor], list[float]] | None:
    """The average that a server has kept, and the losses that were evaluated."""
    one = replace(over(averaged({**EMA, "evaluate": True}), 2, 1), evaluate={"every": f"{STEPS} steps"})
    served(rank, size, one, until={0: 5, 1: 5})
    kept = served(rank, size, one)
    if rank:
        return None
    return in_checkpoint(Path("runs/it/checkpoints"))[0], [one["figures"]["loss"] for one in kept.told("evaluated")]


def test_servers_keep_the_average_of_one_device_and_evaluate_it(workers):
    trained(0, 1, averaged(EMA), "alone", disk=Quick())
    average, losses = workers(3, over_servers)[0]
    torch.testing.assert_close(average, in_checkpoint(Path("alone"))[0], rtol=1e-4, atol=1e-5)
    assert losses == [pytest.approx(loss_of(average), rel=1e-5)]


def saved_by_servers(rank: int, size: int, names: Mapping[str, int]) -> dict[str, Any]:
    """By name the weights after each update, the average after the last, and its loss as it was evaluated.

    names: with how many workers.
    """
    found = {}
    for name, workers in names.items():
        every = {"every": "1 step", "keep_last": STEPS, "keep_best": False}
        one = replace(averaged({**EMA, "evaluate": True}), checkpoint=every, evaluate={"every": f"{STEPS} steps"})
        kept = served(rank, size, over(one, workers, size - workers, **APART[name]), name.replace(" ", "-"))
        if not rank:
            folder = Path("runs") / name.replace(" ", "-") / "checkpoints"
            steps = Checkpoints(folder.absolute()).steps()
            weights = [in_checkpoint(folder, step)[1] for step in steps]
            found[name] = weights, in_checkpoint(folder)[0], kept.told("evaluated")[-1]["figures"]["loss"]
    return found


@pytest.mark.slow  # whole runs
def test_servers_keep_and_evaluate_that_of_what_workers_agree_on(workers):
    names = {"local": 2, "outer rule": 2, "elastic": 1}  # two pull within a step at times, which is saved once
    for name, (weights, average, loss) in workers(3, saved_by_servers, names)[0].items():
        assert len(weights) >= STEPS // 3
        by_hand = weights[0]
        for one in weights[1:]:
            by_hand = {key: values.lerp(one[key], 1 - EMA["decay"]) for key, values in by_hand.items()}
        torch.testing.assert_close(average, by_hand, rtol=1e-4, atol=1e-5, msg=name)
        assert loss == pytest.approx(loss_of(average), rel=1e-5), name


def test_evaluations_are_of_the_average_if_asked_and_change_nothing():
    found = [
        trained(
            0, 1, replace(averaged({**EMA, "evaluate": asked}), evaluate={"every": "4 steps"}), str(asked), disk=Quick()
        )
        for asked in (False, True)
    ]
    losses = [[figures["loss"] for _, figures in one.metrics] for one in found]
    assert len(losses[0]) == len(losses[1]) == 3
    assert losses[0] != losses[1]
    raw, of_average = (one.parameters for one in found)
    assert all(torch.equal(raw[name], of_average[name]) for name in raw)


@pytest.mark.parametrize("name", ROOM.names())
def test_every_average_says_what_enters_it(name):
    kinds = {
        "none": ROOM.load("none")(),
        "ema": Ema(decay=0.9),
        "swa": Swa(start=Period(2, "steps"), every=Period(2, "steps")),
    }
    asked = ((0, 0, 1), (0, 0, 4), (1, 4, 6), (2, 6, 6), (2, 6, 9))  # in one step twice, and three steps at once
    shares = [kinds[name].share(*one, 10) for one in asked]
    wanted = {"none": [None] * 5, "ema": [0.1] * 5, "swa": [None, 1.0, 0.5, None, 1 / 3]}
    assert shares == pytest.approx(wanted[name])


def test_what_has_no_average_says_so():
    trained(0, 1, averaged({"name": "none"}), "it", disk=Quick())
    with pytest.raises(
        RunError, match=r"has no averages of weights; accepted with --average: a run with train\.average"
    ):
        in_checkpoint(Path("it"))
