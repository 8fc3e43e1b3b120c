"""Fully connected layers that are cut over workers with samples of their own: what one device trains."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import nn

from _workers import joined
from partition._by_hand import ReadByHand
from partition._cut import assert_same, blocks
from train._training import Quick, Trained, looked_at, made, session, trained
from train.test_equal_workers import RULES
from train.test_not_finite import spoilt
from train.test_sharded import FORTY
from train.test_sharded_zoo import IMAGES, SMALL_GPT, TOKENS, of, zoo
from volary.errors import NotFinite, SettingError
from volary.partition import ROOM
from volary.partition.cutting.hybrid_layer import portions
from volary.session import Session

FEW = {"steps": 8}
WITHIN = f"{Path(__file__).with_name('_by_hand.py')}:Within"


def hybrid(scheme: int, *layers: str) -> dict[str, Any]:
    return {"partition": {"name": "hybrid", "scheme": scheme, **({"layers": list(layers)} if layers else {})}}


def sessions(cut: bool = True) -> dict[str, Session]:
    """By name: every kind of parameter, rule and step. 41 samples: the epoch's last batch has one."""
    adam, sgd = RULES["adam"], RULES["sgd"]

    def of_scheme(scheme: int, *layers: str) -> dict[str, Any]:
        return hybrid(scheme, *layers) if cut else {}

    alexnet = {"name": session("AlexNetLike").network.reference}
    one = {scheme: session("Exact", optimizer=adam, train=FEW, strategy=of_scheme(scheme)) for scheme in (1, 2, 3)}
    return {
        **{f"scheme {scheme}": found for scheme, found in one.items()},
        "one layer": session("Exact", optimizer=sgd, train=FEW, strategy=of_scheme(2, "layers.2")),
        "frozen, tied, unused": session("Odd", optimizer=sgd, source=FORTY, train=FEW, strategy=of_scheme(1, "first")),
        "accumulated": session("Exact", optimizer=sgd, train=FEW | {"accumulate": 3}, strategy=of_scheme(3)),
        "clipped": session("Exact", optimizer=sgd, train=FEW | {"clip_norm": 0.05}, strategy=of_scheme(1)),
        "lenet": of(zoo("lenet"), IMAGES, sgd | {"lr": 0.01}, of_scheme(2)),
        "alexnet-like": of(alexnet, IMAGES, adam | {"lr": 1e-3}, of_scheme(3)),
        "recurrent": of(zoo("lstm", hidden=12, dropout=0.0), TOKENS, sgd | {"lr": 0.01}, of_scheme(1)),
        "transformer": of(zoo("gpt", **SMALL_GPT), TOKENS, adam | {"lr": 1e-3}, of_scheme(3)),
    }


def train_all(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions(world_size > 1).items()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return train_all(0, 1)


@pytest.mark.slow  # a mesh of such replicas equals one device in test_mesh.py
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_cut_layers_of_workers_with_samples_of_their_own_equal_one_device(workers, alone, world_size):
    for rank, found in enumerate(workers(world_size, train_all)):
        for name, one in sessions().items():
            own = blocks(one, rank, world_size)
            assert own, "something is cut"
            assert_same(found[name], alone[name], own, f"{name}, rank {rank} of {world_size}:")
            if rank == 0:
                (how,) = found[name].events("exchange")
                assert "gradients beside those of layers that are cut" in how["route"]


def stepwise(strategy: dict[str, Any]) -> Session:
    """Saves after 4 of 8 steps, with dropout, batch norm and Adam; evaluated, and compared, in between."""
    return session(
        "Dropping",
        source={"name": "points", "samples": 121},
        optimizer=RULES["adam"],
        train={"steps": 8, "compare_replicas": "3 steps"},
        evaluate={"every": "3 steps"},
        checkpoint={"every": "4 steps"},
        strategy=strategy,
    )


def interrupted(rank: int, world_size: int) -> list[Trained]:
    """Results of a training without a stop, and of one that continues from its own checkpoint after 4 steps."""
    one = stepwise(hybrid(2))
    whole = trained(rank, world_size, one, "whole", disk=Quick())
    trained(rank, world_size, one, "halves", disk=Quick(), until=lambda step: step == 4)
    found = [whole, trained(rank, world_size, one, "halves", disk=Quick())]
    for name, strategy in (("data", {}), ("tensor", {"partition": "tensor"}), ("scheme 3", hybrid(3))):
        if rank == 0:
            shutil.copytree("whole", f"{name} 0")
        joined().bulletin.share(f"copied {name}", 1)
        found.append(made(rank, world_size, stepwise(strategy), f"{name} 0", disk=Quick()))
        found[-1].coordinator.saver.resume()
        found[-1] = looked_at(found[-1])
    return found


def test_as_many_workers_go_on_bit_for_bit_and_other_partitions_from_them(workers):
    everyone = workers(2, interrupted)
    parts = [blocks(stepwise(hybrid(2)), rank, 2) for rank in range(2)]
    for rank, (whole, resumed, data, tensor, other) in enumerate(everyone):
        assert resumed.outcome == "finished" and len(resumed.rows) == 4
        assert len(whole.metrics) == (3 if rank == 0 else 0)
        for name, values in whole.parameters.items():
            assert torch.equal(resumed.parameters[name], values), f"resumed {name}"
            assert torch.equal(other.parameters[name], values), f"another scheme's {name}"
            cut = blocks(stepwise({"partition": "tensor"}), rank, 2)
            together = torch.full_like(data.parameters[name], torch.nan) if name in parts[0] else values
            for block, found in zip(parts, everyone, strict=True):
                if name in block:
                    block[name].put_into(together, found[0].parameters[name])
            if rank == 0:  # which reads for all
                assert torch.equal(data.parameters[name], together), f"whole {name}"
            wanted = cut[name].taken_from(together) if name in cut else together
            assert torch.equal(tensor.parameters[name], wanted), f"part of {name}"


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (
            ["nowhere"],
            "layers names 'nowhere', which is no fully connected layer of it; accepted: layers.0, layers.2, ",
        ),
        (["layers.4"], "layers names layers.4, which has 4 outputs for 5 workers; accepted: to leave it out, or fewer"),
    ],
)
def test_layers_that_cannot_be_cut_are_refused_in_a_sentence(layers, said):
    with pytest.raises(SettingError) as found:
        blocks(session("Exact", strategy=hybrid(1, *layers)), 0, 5)
    assert said in str(found.value)


@pytest.mark.parametrize("settings", [{"scheme": 4}, {"layers": "fc6"}, {"layers": []}, {"layers": ["fc6", "fc6"]}])
def test_settings_that_are_none_are_refused(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        ROOM.load("hybrid")(**settings)


def sub_batches(scheme: int | None) -> Session:
    """With a layer behind the ones that are cut that is not. 31 samples: the epoch's last batch has one."""
    partition = {"name": "hybrid", "scheme": scheme, "layers": FULLY_CONNECTED, "updates": "sub_batch"}
    network = {"name": session("AlexNetLike").network.reference}
    one = of(
        network, {**IMAGES, "samples": 31}, RULES["sgd"] | {"lr": 0.01}, {"partition": partition} if scheme else {}
    )
    return replace(one, train=replace(one.train, steps=5))


FULLY_CONNECTED = ["classifier.0", "classifier.2"]


def learn_sub_batches(rank: int, world_size: int) -> dict[int, Trained]:
    return {scheme: trained(rank, world_size, sub_batches(scheme), f"sub {scheme}", disk=Quick()) for scheme in (2, 3)}


def by_the_paper(scheme: int, ranks: int) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Krizhevsky 2014, "Variable batch size": convolutions learn from the batch, fully connected layers from each
    sub-batch, which passes them forward and backward before the next one. Parameters, and the batches' losses.
    """
    it = made(0, 1, sub_batches(None), "paper", disk=Quick())
    network, losses = it.flow.module, list[float]()
    cut = [one for name in FULLY_CONNECTED for one in network.get_submodule(name).parameters()]
    others = [one for one in network.parameters() if all(one is not other for other in cut)]
    often, once = (torch.optim.SGD(one, 0.01, momentum=0.9, weight_decay=0.01) for one in (cut, others))
    for _ in range(5):
        batch = next(it.coordinator.rank.data.feed)
        count = len(batch.inputs)
        shares = [torch.arange(count)[rank::ranks] for rank in range(ranks)]
        split = [share.tensor_split(min(ranks, max(1, len(share)))) for share in shares]
        parts = [
            torch.cat([torch.arange(0), *(one[turn] for one in split if turn < len(one))]) for turn in range(ranks)
        ]
        features, loss_of_all = network.features(batch.inputs.double()), 0.0
        given = features.detach().requires_grad_()
        for rows in shares if scheme == 2 else parts:
            if len(rows):
                loss = nn.functional.cross_entropy(network.classifier(given[rows]), batch.targets[rows])
                (loss * len(rows) / count).backward()
                for one in cut:
                    one.grad *= count / len(rows)  # the mean over the sub-batch
                often.step()
                often.zero_grad()
                loss_of_all += float(loss.detach()) * len(rows) / count
        features.backward(given.grad)
        once.step()
        once.zero_grad()
        losses.append(loss_of_all)
    return dict(network.named_parameters()), losses


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_updates_once_a_sub_batch_are_those_of_the_paper(workers, ranks, tmp_path, monkeypatch):
    everyone = workers(ranks, learn_sub_batches)
    monkeypatch.chdir(tmp_path)
    for scheme in (2, 3):
        parameters, losses = by_the_paper(scheme, ranks)
        for rank, found in enumerate(everyone):
            own = blocks(sub_batches(scheme), rank, ranks)
            assert found[scheme].losses == pytest.approx(losses, abs=1e-9)
            for name, values in parameters.items():
                wanted = own[name].taken_from(values) if name in own else values
                torch.testing.assert_close(found[scheme].parameters[name], wanted.detach(), rtol=0, atol=1e-9)
            assert not found[scheme].events("warning")


def resume_sub_batches(rank: int, world_size: int) -> list[Trained]:
    trained(rank, world_size, sub_batches(3), "halves", disk=Quick(), until=lambda step: step == 2)
    return [trained(rank, world_size, sub_batches(3), name, disk=Quick()) for name in ("halves", "whole")]


@pytest.mark.slow
def test_a_run_that_updates_once_a_sub_batch_resumes_bit_for_bit(workers):
    for resumed, whole in workers(2, resume_sub_batches):
        assert len(resumed.rows) == 3
        assert all(torch.equal(resumed.parameters[name], values) for name, values in whole.parameters.items())


@pytest.mark.parametrize(
    ("settings", "more", "said"),
    [
        ({"scheme": 1}, {}, "updates: is sub_batch, and scheme 1 hands over all batches at once; accepted: scheme 2"),
        ({}, {"train": {"clip_norm": 1.0}}, "train.clip_norm is 1, and with partition.updates=sub_batch layers that"),
        ({}, {"train": {"on_nonfinite": "skip"}}, "train.on_nonfinite is skip, and with partition.updates=sub_batch"),
        ({}, {"train": {"average": "ema"}}, "train.average is ema, and with partition.updates=sub_batch"),
        ({"mesh": True}, {}, "axes gives hybrid updates=sub_batch, with which replicas would differ; accepted"),
    ],
)
def test_what_does_not_go_with_updates_once_a_sub_batch_is_refused(settings, more, said):
    mesh, own = settings.get("mesh"), {"updates": "sub_batch", "scheme": settings.get("scheme", 2)}
    axes = {"name": "mesh", "axes": {"data": 2, "hybrid": {"workers": 2, **own}}}
    with pytest.raises(SettingError, match=said):
        session("Exact", strategy={"workers": 4, "partition": axes if mesh else {"name": "hybrid", **own}}, **more)


def test_a_frozen_layer_that_is_cut_takes_no_updates_once_a_sub_batch():
    layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    layers[1].bias.requires_grad_(False)
    with pytest.raises(SettingError, match=r"updates is sub_batch, and 1.bias is frozen, of a layer that is cut"):
        ROOM.load("hybrid")(scheme=2, updates="sub_batch").part(layers, 0, 2)


def test_a_weight_that_is_read_by_hand_is_refused_before_training_with_updates_once_a_sub_batch_too():
    once = ROOM.load("hybrid")(scheme=2, updates="sub_batch")
    network = nn.Sequential(nn.Linear(6, 6), ReadByHand())
    with pytest.raises(
        SettingError,
        match=r"uses 1.last.weight outside of 1.last, and with partition=hybrid a worker has a part of it; "
        r"accepted: strategy.partition.layers without 1.last, or partition=data",
    ):
        once.part(network, 0, 2)
    replace(once, layers=["0"]).part(network, 0, 2)


def read_by_hand(rank: int, world_size: int) -> str:
    once = {"partition": {"name": "hybrid", "scheme": 3, "updates": "sub_batch"}}
    points = {"name": session("Exact").data.source.reference}
    with pytest.raises(SettingError) as found:
        trained(rank, world_size, of({"name": WITHIN}, points, RULES["sgd"], once), disk=Quick())
    return str(found.value)


def test_a_weight_that_is_read_by_hand_where_the_code_is_not_followed_is_found_with_the_first_sub_batch(workers):
    for said in workers(2, read_by_hand):
        assert said.startswith("the network's forward uses 1.last.weight outside of 1.last, and with partition=hybrid")


def test_a_network_without_fully_connected_layers_is_refused():
    with pytest.raises(
        SettingError, match="the network has no fully connected layer with a weight of its own; accepted"
    ):
        ROOM.load("hybrid")().part(nn.Sequential(nn.Conv2d(1, 2, 3)), 0, 2)


@given(some.sampled_from([1, 2, 3]), some.lists(some.integers(0, 7), min_size=1, max_size=5))
def test_each_sample_is_handed_over_once_whatever_the_scheme(scheme, rows):
    found = portions(scheme, rows)
    assert len(found) == (1 if scheme == 1 else len(rows))
    for rank, count in enumerate(rows):
        assert [row for span in found for row in range(*span[rank])] == list(range(count))


PARTS = {"tensor": {"partition": "tensor"}, "hybrid": hybrid(3)}


def skip_and_stop(rank: int, world_size: int) -> dict[str, tuple[Trained, str]]:
    """By partition: what comes of a run that leaves a step out whose loss is no number, and what one says that ends."""
    found = {}
    for name, strategy in PARTS.items() if world_size > 1 else {"": {}}.items():
        left = trained(rank, world_size, spoilt("skip", strategy=strategy), f"skip {name}", disk=Quick())
        with pytest.raises(NotFinite) as ended:
            trained(rank, world_size, spoilt("stop", strategy=strategy), f"stop {name}", disk=Quick())
        found[name] = left, str(ended.value)
    return found


def test_a_step_whose_loss_is_no_number_is_left_out_or_ends_training_on_all_workers(workers):
    ((alone, _),) = skip_and_stop(0, 1).values()
    for rank, found in enumerate(workers(2, skip_and_stop)):
        for name, (left, said) in found.items():
            own = blocks(spoilt("skip", strategy=PARTS[name]), rank, 2)
            assert [math.isfinite(loss) for loss in left.losses] == [math.isfinite(loss) for loss in alone.losses]
            left.rows, before = [], left.rows
            assert_same(left, replace(alone, rows=[]), own, f"{name}, rank {rank}:")
            assert len(before) == len(alone.rows) and not math.isfinite(before[2].loss)
            spoilt_on = "1" if name == "hybrid" else "0"  # of the replica that all hold together
            assert said == f"the loss of rank {spoilt_on} is NaN or infinite at step 3; last good checkpoint: none yet"
