"""Averages of weights are kept by whoever updates the weights, in every strategy, and are resumed with them."""

from __future__ import annotations

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
from volary.errors import RunError, SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Session
from volary.session.values.period import Period
from volary.train.averages import ROOM
from volary.train.averages.ema import Ema
from volary.train.averages.swa import Swa
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
    "level 3": {"exchange": RING, "partition": {"name": "sharded", "level": 3}},
    "tensor": {"partition": "tensor"},
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


def by_torch(average: dict[str, Any]) -> dict[str, Tensor]:
    """What torch's own averages come to, beside the same updates on one device."""
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


def train_all(rank: int, size: int) -> list[dict[str, tuple[dict[str, Tensor], dict[str, Tensor]]]]:
    for name, strategy in STRATEGIES.items():
        one = averaged(EMA, strategy | {"workers": size})
        trained(rank, size, one, f"{name} whole", disk=Quick())
        trained(rank, size, one, f"{name} resumed", disk=Quick(), until=lambda step: step >= 5)
        trained(rank, size, one, f"{name} resumed", disk=Quick())
    if rank:
        return []
    return [{name: in_checkpoint(Path(f"{name} {which}")) for name in STRATEGIES} for which in ("whole", "resumed")]


def test_workers_keep_the_average_of_one_device_and_resume_it_bit_for_bit(workers):
    trained(0, 1, averaged(EMA), "alone", disk=Quick())
    alone, _ = in_checkpoint(Path("alone"))
    whole, resumed = workers(2, train_all)[0]
    for name, (average, raw) in whole.items():
        torch.testing.assert_close(average, alone, rtol=1e-4, atol=1e-5)
        again, again_raw = resumed[name]
        assert all(torch.equal(again[key], average[key]) for key in average), name
        assert all(torch.equal(again_raw[key], raw[key]) for key in raw), name


def over_servers(rank: int, size: int) -> tuple[dict[str, Tensor], dict[str, Tensor]] | None:
    one = over(averaged(EMA), 2, 1)
    served(rank, size, one, until={0: 5, 1: 5})
    served(rank, size, one)
    return None if rank else in_checkpoint(Path("runs/it/checkpoints"))


def test_servers_keep_the_average_of_one_device(workers):
    trained(0, 1, averaged(EMA), "alone", disk=Quick())
    average, _ = workers(3, over_servers)[0]
    torch.testing.assert_close(average, in_checkpoint(Path("alone"))[0], rtol=1e-4, atol=1e-5)


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
    shares = [kinds[name].share(count, done, 10) for count, done in ((0, 1), (0, 4), (1, 6))]
    wanted = {"none": [None] * 3, "ema": [0.1] * 3, "swa": [None, 1.0, 0.5]}
    assert shares == pytest.approx(wanted[name])


def test_what_has_no_average_says_so():
    trained(0, 1, averaged({"name": "none"}), "it", disk=Quick())
    with pytest.raises(
        RunError, match=r"has no averages of weights; accepted with --average: a run with train\.average"
    ):
        in_checkpoint(Path("it"))
    for strategy, sentence in (
        (
            {"workers": 2, "consistency": "local"},
            "train.average is ema, and with consistency=local each worker updates",
        ),
        ({"workers": 2, "exchange": "server"}, "train.average.evaluate is true, and .*accepted: false, and"),
    ):
        with pytest.raises(SettingError, match=sentence):
            averaged({**EMA, "evaluate": True}, strategy)
