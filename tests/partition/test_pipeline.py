"""Workers that hold stages of layers train what one device trains, with every schedule and number of workers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from partition._cut import GPT, STEPS
from train._training import Quick, Trained, session, trained
from train.test_equal_workers import RULES
from train.test_sharded_zoo import IMAGES, TOKENS, of, zoo
from volary.errors import SettingError
from volary.partition.pipelining.schedules import SCHEDULES
from volary.session import Session
from volary.train.model import build_model


def sessions(strategy: dict[str, Any], stages: int) -> dict[str, Session]:
    """By name: every kind of network, rule and step. 10 samples a step, which micro-batches do not divide.

    Those networks that can be cut into so many stages.
    """
    adam, sgd, few = RULES["adam"], RULES["sgd"], {"steps": STEPS}
    slow, slower = adam | {"lr": 1e-3}, sgd | {"lr": 0.01}
    gpt, lstm = zoo("gpt", **GPT | {"layers": 4}, tied=False), zoo("lstm", hidden=8, dropout=0.0)
    alexnet = {"name": session("AlexNetLike").network.reference}
    deepest = {
        "perceptron": (3, session("Exact", optimizer=adam, train=few, strategy=strategy)),
        "accumulated": (3, session("Exact", optimizer=sgd, train=few | {"accumulate": 2}, strategy=strategy)),
        "clipped by norm": (3, session("Exact", optimizer=sgd, train=few | {"clip_norm": 0.05}, strategy=strategy)),
        "whole tensors": (3, session("Exact", optimizer={"name": "lars", "lr": 0.2}, train=few, strategy=strategy)),
        "lstm": (3, of(lstm, TOKENS, slower, strategy)),
        "lenet": (4, of(zoo("lenet"), IMAGES, slower, strategy)),
        "alexnet-like": (5, of(alexnet, IMAGES, slow, strategy)),
        "transformer": (7, of(gpt, TOKENS, slow, strategy)),
    }
    return {name: one for name, (most, one) in deepest.items() if stages <= most}


def train_all(rank: int, world_size: int, strategy: dict[str, Any], stages: int) -> dict[str, Trained]:
    """A rank's results of all sessions that so many stages can be made of."""
    found = sessions(strategy, stages)
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in found.items()}


@pytest.fixture(scope="module")
def one_device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1, {}, 1)


def assert_same(everyone: list[dict[str, Trained]], alone: dict[str, Trained], atol: float) -> None:
    """Together all ranks have what one device has, each parameter once."""
    for name, expected in ((name, alone[name]) for name in everyone[0]):
        where = f"{name} of {len(everyone)}"
        for found in everyone:
            assert found[name].losses == pytest.approx(expected.losses, abs=1e-5), where
        keys = [key for found in everyone for key in found[name].parameters]
        assert sorted(keys) == sorted(expected.parameters), where
        for found in everyone:
            for key, values in found[name].parameters.items():
                torch.testing.assert_close(
                    values,
                    expected.parameters[key],
                    rtol=0,
                    atol=atol,
                    msg=lambda text, at=f"{where} {key}": f"{at}: {text}",
                )


@pytest.mark.parametrize(
    ("world_size", "schedule"),
    [
        (2, "zero_bubble"),
        *(pytest.param(2, schedule, marks=pytest.mark.slow) for schedule in ("gpipe", "1f1b", "interleaved")),
        *(pytest.param(3, schedule, marks=pytest.mark.slow) for schedule in SCHEDULES),
        *(pytest.param(4, schedule, marks=pytest.mark.slow) for schedule in ("gpipe", "1f1b", "zero_bubble")),
    ],
)
def test_stages_equal_one_device(workers, one_device, world_size, schedule):
    micro_batches = 3 if schedule == "gpipe" else 4
    partition = {"name": "pipeline", "micro_batches": micro_batches, "schedule": schedule}
    stages = world_size * SCHEDULES[schedule].stages_each
    found = workers(world_size, train_all, {"workers": world_size, "partition": partition}, stages)
    assert_same(found, one_device, atol=1e-11)


FEW = {"steps": 12}
SAVED = {"checkpoint": {"every": "4 steps", "keep_last": 5}}
STAGES_OF_2 = {"workers": 2, "partition": {"name": "pipeline", "micro_batches": 3}}
STAGES_OF_3 = {"workers": 3, "partition": {"name": "pipeline", "micro_batches": 3}}
DATA = {"workers": 2, "partition": "data"}


def dropping(strategy: dict[str, Any]) -> Session:
    """A network with dropout, in 64 bits; of a rest of a batch, too, and measured while it trains."""
    return Session(
        network=zoo("gpt", **GPT | {"layers": 3, "dropout": 0.3}, tied=False),
        data={"source": {**TOKENS, "samples": 33}, "batch_size": 8},
        optimizer=RULES["adam"] | {"lr": 1e-3},
        train={"steps": 6},
        evaluate={"every": "3 steps"},
        checkpoint={"every": "never"},
        strategy=strategy,
    )


def train_dropping(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    return trained(rank, world_size, dropping({"workers": world_size, **strategy}), disk=Quick())


@pytest.mark.slow  # stages equal one device above
def test_dropout_draws_the_same_wherever_stages_begin_and_a_network_in_stages_is_measured(workers):
    """A rest of a batch has one sample: fewer than there are micro-batches."""
    strategy = {"partition": {"name": "pipeline", "micro_batches": 3, "schedule": "gpipe"}}
    (alone,) = workers(1, train_dropping, strategy)
    assert len(alone.metrics) == 2
    cut = {"partition": {**strategy["partition"], "schedule": "1f1b", "stages": ["layers.blocks.1"]}}
    for world_size, way in ((2, cut), (3, strategy)):
        everyone = workers(world_size, train_dropping, way)
        for (step, found), (_, expected) in zip(everyone[0].metrics, alone.metrics, strict=True):
            assert found == pytest.approx(expected, abs=1e-9), step
        for found in everyone:
            assert found.losses == pytest.approx(alone.losses, abs=1e-9)
            for key, values in found.parameters.items():
                torch.testing.assert_close(values, alone.parameters[key], rtol=0, atol=1e-12)


def saving(strategy: dict[str, Any]) -> Session:
    return session("Exact", optimizer=RULES["adam"], train=FEW, strategy=strategy, **SAVED)


def train_until(rank: int, world_size: int, strategy: dict[str, Any], folder: str, last: int) -> Trained:
    """Train from the newest checkpoint, if there is one, until a step."""
    return trained(rank, world_size, saving(strategy), folder, disk=Quick(), until=lambda step: step >= last)


@pytest.mark.slow  # other stages come below
def test_a_run_resumes_bit_for_bit(workers, tmp_path):
    whole = workers(2, train_until, STAGES_OF_2, str(tmp_path / "whole"), 12)
    workers(2, train_until, STAGES_OF_2, str(tmp_path / "run"), 4)
    (said,) = whole[0].events("exchange")
    assert said["route"] == "between stages, of which the next ones begin with layers.2"
    assert said["update"] == "once 3 micro-batches have passed; workers wait 25% or more"
    for one, other in zip(workers(2, train_until, STAGES_OF_2, str(tmp_path / "run"), 12), whole, strict=True):
        assert one.losses == other.losses[-8:] and len(one.losses) == 8
        assert one.parameters.keys() == other.parameters.keys()
        assert all(torch.equal(one.parameters[key], values) for key, values in other.parameters.items())


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (STAGES_OF_2, DATA),
        (DATA, STAGES_OF_2),
        pytest.param(STAGES_OF_2, STAGES_OF_3, marks=pytest.mark.slow),
        pytest.param(STAGES_OF_3, DATA, marks=pytest.mark.slow),
    ],
)
def test_a_run_resumes_with_other_stages_and_with_none(workers, tmp_path, first, then):
    (alone,) = workers(1, train_until, {}, str(tmp_path / "alone"), 12)
    folder = str(tmp_path / "run")
    workers(first["workers"], train_until, first, folder, 4)
    for found in workers(then["workers"], train_until, then, folder, 12):
        assert found.losses == pytest.approx(alone.losses[4:], abs=1e-6) and len(found.losses) == 8
        for key, values in found.parameters.items():
            torch.testing.assert_close(values, alone.parameters[key], rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"stages": ["fc6", "fc6"]}, "names a layer twice; accepted: different layers"),
        ({"stages": 3}, "partition.stages: is 3; accepted: auto, or names of layers"),
        ({"micro_batches": 0}, "partition.micro_batches: is 0; accepted: auto, or a number from 1"),
        ({"schedule": "fast"}, "schedule"),
        ({"micro_batches": 11}, "data.batch_size.*10; accepted: 11 or more, .*strategy.partition.micro_batches"),
    ],
)
def test_settings_that_cannot_be_are_refused_without_a_network(settings, said):
    with pytest.raises(SettingError, match=said):
        session("Exact", strategy={"workers": 2, "partition": {"name": "pipeline", **settings}})


@pytest.mark.parametrize(
    ("settings", "workers_wanted", "said"),
    [
        ({}, 4, "makes 4 stages, and the network can be cut into 3 that train something; accepted: no more stages"),
        ({"schedule": "interleaved"}, 2, "makes 4 stages, and the network can be cut into 3"),
        ({"stages": ["layers.2"]}, 3, "stages names 1 layers, and there are 3 stages; accepted: 2 names"),
        ({"stages": ["layers.9"]}, 2, "the network has no layer 'layers.9'; accepted: .*'layers.2'"),
        ({"stages": ["layers.4", "layers.2"]}, 3, "'layers.2' runs before 'layers.4'"),
        ({"stages": ["layers.2", "layers.3", "layers.4"]}, 4, "that begins with 'layers.3' trains no parameter"),
    ],
)
def test_stages_that_cannot_be_are_refused_on_all_ranks_alike(settings, workers_wanted, said):
    one = session("Exact", strategy={"workers": workers_wanted, "partition": {"name": "pipeline", **settings}})
    module = build_model(one, torch.device("cpu")).module
    sentences = set()
    for rank in range(workers_wanted):
        with pytest.raises(SettingError, match=said) as found:
            one.strategy.partition.part(module, rank, workers_wanted)
        sentences.add(str(found.value))
    assert len(sentences) == 1


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"consistency": "local"}, "with consistency=local each worker updates all parameters"),
    ],
)
def test_what_does_not_go_with_stages_is_refused(strategy, said):
    with pytest.raises(SettingError, match=said):
        session("Exact", strategy={"workers": 2, "partition": "pipeline", **strategy})
