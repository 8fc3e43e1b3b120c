"""Truncated back-propagation: a network's state goes on from batch to batch, alike on any workers and when resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from docs._pages import CHECKOUT
from train._training import USER_NETWORKS, Quick, Trained, trained
from train.test_equal_workers import ROUNDING
from volary.data.batching.batch import Batch
from volary.data.samples import Samples
from volary.errors import SettingError
from volary.session import Session
from volary.train.data.streams import Streams
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

LENGTH, STREAMS, STEPS, STOP = 50, 6, 25, 9  # of some 110 samples, so that the last steps are of the second epoch
LSTM = {"hidden": 5, "layers": 2, "dropout": 0.0, "stateful": True}
CPU = torch.device("cpu")


def session(*, data: dict[str, Any] | None = None, **settings: Any) -> Session:
    text = {"name": "text", "path": str(CHECKOUT / "LICENSE"), "length": LENGTH, "validation": 0.5}
    return Session(
        **{
            "network": {"name": f"{USER_NETWORKS}:Zoo64", "zoo": "lstm", "of": LSTM},
            "data": {"source": text, "batch_size": STREAMS, "shuffle": False, **(data or {})},
            "optimizer": {"name": "sgd", "lr": 1.0, "momentum": 0.9},
            "train": {"steps": STEPS},
            "evaluate": {"every": "10 steps"},
            "checkpoint": {"every": "never"},
            **settings,
        }
    )


def columns(samples: Samples) -> Iterator[tuple[bool, Tensor, Tensor]]:
    """Windows of columns of a text, and what is left over of it: whether the memory is new, inputs, targets."""
    inputs, targets = samples.fetch(torch.arange(len(samples)))
    count, rest = divmod(len(samples), STREAMS)
    streams = [one[: STREAMS * count].view(STREAMS, count, LENGTH) for one in (inputs, targets)]
    for at in range(count):
        yield at == 0, streams[0][:, at], streams[1][:, at]
    if rest:
        yield True, inputs[-rest:], targets[-rest:]


def by_hand() -> tuple[dict[str, Tensor], list[float], float]:
    """Parameters, losses and validation loss of the textbook's loop, with a memory that is detached."""
    seed_all(1)
    model = build_model(session(), CPU)
    net, memory = model.module.layers, None

    def loss_of(anew: bool, symbols: Tensor, following: Tensor) -> Tensor:
        nonlocal memory
        hidden, memory = net.lstm(net.embedding(symbols), None if anew else memory)
        memory = [one.detach() for one in memory]
        return cross_entropy(net.decoder(hidden).flatten(0, 1), following.flatten())

    momenta, losses, epoch = [torch.zeros_like(one) for one in net.parameters()], [], list(columns(model.samples))
    assert len(model.samples) % STREAMS and len(epoch) + 1 < STEPS
    for step in range(STEPS):
        loss = loss_of(*epoch[step % len(epoch)])
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for one, momentum, gradient in zip(net.parameters(), momenta, gradients, strict=True):
                one -= momentum.mul_(0.9).add_(gradient)
        losses.append(loss.item())
    with torch.no_grad():
        sums = [loss_of(*batch).item() * len(batch[1]) for batch in columns(model.validation)]
    return (
        {f"layers.{name}": p.detach() for name, p in net.named_parameters()},
        losses,
        sum(sums) / len(model.validation),
    )


@pytest.mark.slow  # two workers come below, against one
def test_one_device_trains_and_evaluates_as_the_loop_that_keeps_its_memory_by_hand():
    parameters, losses, validation = by_hand()
    found = trained(0, 1, session(), disk=Quick())
    torch.testing.assert_close(found.parameters, parameters, rtol=0, atol=ROUNDING)
    assert found.losses == pytest.approx(losses, rel=1e-9)
    assert found.metrics[-1][1]["loss"] == pytest.approx(validation, rel=1e-6)


def stopped_and_resumed(rank: int, world_size: int) -> tuple[Trained, Trained]:
    """Trained without interruption, and in two parts, of the second of which this is the end."""
    two = session(strategy={"workers": world_size})
    whole = trained(rank, world_size, two, "whole", disk=Quick())
    trained(rank, world_size, two, "parts", disk=Quick(), until=lambda step: step == STOP)
    return whole, trained(rank, world_size, two, "parts", disk=Quick())


def test_two_workers_equal_one_also_when_resumed_within_streams_by_as_many_or_fewer(workers):
    alone = trained(0, 1, session(), "alone", disk=Quick())
    ranks = workers(2, stopped_and_resumed)
    for (_, mine), (_, theirs) in zip(ranks[0][0].metrics, alone.metrics, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6)
    for whole, rest in ranks:
        torch.testing.assert_close(whole.parameters, alone.parameters, rtol=0, atol=ROUNDING)
        assert len(rest.rows) == STEPS - STOP
        for name, values in whole.parameters.items():
            assert values.equal(rest.parameters[name]), name
    kept = f"step-{STOP:08d}"
    shutil.copytree(workers.folder / "1/parts" / kept, f"fewer/{kept}")
    fewer = trained(0, 1, session(), "fewer", disk=Quick())
    assert len(fewer.rows) == STEPS - STOP
    torch.testing.assert_close(fewer.parameters, alone.parameters, rtol=0, atol=ROUNDING)


def test_a_state_goes_on_once_for_each_batch_and_begins_anew_with_an_epoch_or_a_smaller_batch():
    layers = [
        {"embedding": {"symbols": "classes", "width": 4}},
        {"gru": {"hidden": 6, "stateful": True}},
        {"linear": {"outputs": "classes", "axis": -1}},
    ]
    module: nn.Module = build_model(session(network={"layers": layers}), CPU).module
    symbols, streams, found = torch.arange(12).view(3, 4), Streams(module), []

    def passed(symbols: Tensor, *, ends: bool = False) -> Tensor:
        batch = Batch(symbols, symbols, len(symbols), 0, 0, ends)
        streams.begin(batch)
        outputs: Tensor = module(symbols)
        assert module(symbols).equal(outputs), "what is computed twice goes on once"
        streams.end(batch)
        return outputs

    with torch.no_grad():
        fresh, long = module(symbols), module(torch.cat([symbols, symbols], 1))
        streams.keep()
        found = [passed(symbols), passed(symbols, ends=True), passed(symbols), passed(symbols[:2])]
    torch.testing.assert_close(torch.cat(found[:2], 1), long)
    assert not found[1].equal(fresh)
    torch.testing.assert_close(found[2], fresh)
    torch.testing.assert_close(found[3], fresh[:2])


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"data": {"shuffle": True}}, "data.shuffle is true; accepted: false"),
        ({"data": {"split": {"validation": 0.2}}}, "data is divided by data.split or data.folds; accepted"),
        ({"train": {"steps": 3, "accumulate": 2}}, "train.accumulate is 2; accepted: 1"),
        ({"strategy": {"workers": 2, "exchange": "server"}}, "servers hand out samples; accepted: strategy.exchange="),
        ({"strategy": {"workers": 2, "partition": "pipeline"}}, "parts of one network; accepted: partition=data"),
    ],
)
def test_settings_with_which_no_state_can_go_on_are_refused(settings, what):
    with pytest.raises(SettingError, match=what.replace("(", r"\(")):
        build_model(session(**settings), CPU)
