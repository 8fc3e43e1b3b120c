"""A setting of communication that has no effect is told, with the reason; one that has an effect is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from train._own_served import own_served
from train._training import session, trained
from train.test_own_loop import call
from volary.exchange.gradients import row_blocks

NONE = "there is one worker, which communicates with nobody"
SMALL = "codecs take matrices of 32-bit floats with 1024 values or more, and there is none that it is for"


def train(worker: Any, width: int) -> Any:
    model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 2))
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = TensorDataset(torch.randn(32, 8), torch.arange(32) % 2)
    for inputs, labels in worker.feed(data, batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return model


def loop(worker: Any, width: int = 8) -> None:
    worker.distribute(train(worker, width))  # again: nothing is said twice
    worker.finish()


def told(recorder: Any) -> list[str]:
    return [one["data"]["text"] for one in recorder.events if one.get("event") == "warning"]


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({}, []),
        ({"codec": "onebit"}, [f"strategy.codec=onebit has no effect: {NONE}"]),
        ({"exchange": {"name": "allreduce", "route": "ring"}}, [f"strategy.exchange.route=ring has no effect: {NONE}"]),
        (
            {"consistency": "local", "codec": {"*": "int8"}},
            [f"strategy.consistency=local, strategy.codec have no effect: {NONE}"],
        ),
    ],
)
def test_one_worker_says_which_settings_of_communication_it_has_no_use_for(strategy, said):
    assert told(call(loop, 0, 1, 0, strategy=strategy)[1]) == said


TORCH = {"exchange": {"name": "allreduce", "route": "torch"}}
WARM = {"codec": {"name": "onebit", "warm_up_samples": 64}}
CASES: dict[str, tuple[dict[str, Any], int, list[str]]] = {
    "too small": ({"codec": "onebit"}, 8, [f"codec=onebit has no effect: {SMALL}"]),
    "too small for a low rank": ({"codec": "powersgd"}, 8, [f"codec=powersgd has no effect: {SMALL}"]),
    "large": ({"codec": "onebit"}, 256, []),
    "by layer": ({"codec": {"0.*": "onebit", "2.*": "none"}}, 256, []),
    "by a layer that is too small": ({"codec": {"2.*": "onebit"}}, 256, [f"codec has no effect: {SMALL}"]),
    "in shared memory": ({"codec": "auto"}, 256, ["codec=auto has no effect: all workers are on one machine and add"]),
    "factors of small layers": (
        {"codec": "factors"},
        2,
        ["codec=factors has no effect: factors are of fully connected"],
    ),
    "more factors than values": (
        {"codec": "factors"},
        2,
        ["codec=factors has no effect: every layer's gradient is fewer"],
    ),
    "a warm-up": (
        {**TORCH, **WARM},
        256,
        ["the warm-up of strategy.codec=onebit was not over at the end of training, af"],
    ),
    "exact": (TORCH, 256, []),
}


def all_cases(rank: int, world_size: int) -> dict[str, list[str]]:
    found = {}
    large_bytes = row_blocks.LARGE_BYTES
    for attempt, (name, (strategy, width, _)) in enumerate(CASES.items()):
        row_blocks.LARGE_BYTES = 0 if name == "more factors than values" else large_bytes
        found[name] = told(
            call(lambda worker, width=width: loop(worker, width), rank, world_size, attempt, strategy=strategy)[1]
        )
    return found


def test_a_codec_that_changes_nothing_says_why_and_only_then(workers):
    first, second = workers(2, all_cases)
    for name, (_, _, said) in CASES.items():
        assert second[name] == [], name
        assert len(first[name]) == len(said), (name, first[name])
        for text, expected in zip(first[name], said, strict=True):
            assert expected in text, name


def of_sessions(rank: int, world_size: int) -> list[list[str]]:
    codec = {"name": "onebit", "warm_up_samples": 1000}
    found = []
    for bits, strategy in ((64, {"codec": "int8"}), (32, {**TORCH, "codec": codec})):
        wide = session("Wide", of={"bits": bits, "width": 256}, train={"steps": 3}, strategy=strategy)
        one = trained(rank, world_size, wide, f"{bits} bits")
        found.append([data["text"] for data in one.events("warning")])
    return found


def test_sessions_say_it_too(workers):
    (small, warm_up), others = workers(2, of_sessions)
    assert others == [[], []]
    ended = "was not over at the end of training, after 30 samples; accepted: a smaller warm_up_samples"
    assert warm_up == [f"the warm-up of strategy.codec=onebit {ended}"]
    assert small == [f"strategy.codec=int8 has no effect: {SMALL}, so all values travel as they are"]


def over_servers(rank: int, world_size: int) -> list[list[str]]:
    found = []
    for width in (8, 256):
        strategy = {"workers": world_size - 1, "codec": "onebit"}
        one = own_served(rank, world_size, lambda worker, width=width: train(worker, width), strategy, f"width-{width}")
        found.append([] if one is None else [said["data"]["text"] for said in one.worker_said if "event" in said])
    return found


@pytest.mark.slow  # it is told without servers, too
def test_over_servers_a_codec_that_no_layer_takes_is_told(workers):
    (small, large), *others = workers(3, over_servers)
    assert [text for text in small if "no effect" in text] == [
        f"strategy.codec=onebit has no effect: {SMALL}, so all values travel as they are"
    ]
    assert not [text for texts in ([large], *others) for each in texts for text in each if "no effect" in text]


def in_shared_memory(rank: int, world_size: int) -> list[str]:
    strategy = {"partition": {"name": "sharded", "level": 3}, "exchange": {"name": "allreduce", "route": "shared"}}
    one = trained(rank, world_size, session("Exact", train={"steps": 2}, strategy=strategy))
    return [data["text"] for data in one.events("warning")]


def test_sharing_out_parameters_that_are_in_shared_memory_once_is_told(workers):
    first, others = workers(2, in_shared_memory)
    (told,) = [text for text in first if "level" in text]
    assert told.startswith("strategy.partition.level=3 saves no more than level 1: workers of one machine add ")
    assert "and parameters are there once for all of them; accepted, if that is too much: exchange.route=ring" in told
    assert not [text for text in others if "level" in text]
