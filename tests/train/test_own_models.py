"""Every model of local steps in a loop of one's own: over all-reduce and servers, stopped and resumed, bit for bit."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from _workers import joined
from train._own_served import kept, own_served
from train._own_workers import worker_in
from train._training import Quick
from volary.run.checkpoints import Checkpoints
from volary.session.script import Script
from volary.train.recording.recorder import Recorder
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all

OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
LOCAL = {"name": "local", "period": 2}
BEHIND = {"exchange": {"name": "allreduce", "behind": True}}
TWO_BITS = {"codec": {"name": "topk", "ratio": 0.1, "bits": 2, "decay": 0.95}}
# strategies by name; each keeps what is its own from one period to the next
EVERYWHERE: dict[str, dict[str, Any]] = {
    "periodic": {"consistency": LOCAL},
    "diloco": {"consistency": LOCAL | {"outer": OUTER}},
    "fedadam, int8": {"consistency": LOCAL | {"outer": {"name": "adam", "lr": 0.01}}, "codec": "int8"},
    "post-local, growing": {"consistency": {"name": "local", "period": 1, "after": 4, "doubles": 2, "most": 2}},
    "sparseloco": {"consistency": LOCAL | {"outer": {"name": "sgd", "lr": 1.0}}, **TWO_BITS},
    "demo": {"codec": {"name": "dct", "decay": 0.9}},
    "elastic": {"consistency": {"name": "elastic", "period": 2}},
    "elastic, int8": {"consistency": {"name": "elastic", "period": 2}, "codec": "int8"},
}
AMONG_WORKERS: dict[str, dict[str, Any]] = {
    "overlapped": {"consistency": LOCAL, **BEHIND},
    "fragments": {"consistency": LOCAL | {"fragments": 2, "outer": OUTER}},
    "streaming": {"consistency": LOCAL | {"fragments": 2, "alpha": 0.5, "outer": OUTER}, **BEHIND, "codec": "int8"},
    "eager": {"consistency": LOCAL | {"fragments": 2, "eager": True, "outer": OUTER}, **BEHIND},
    "gossip": {"consistency": {"name": "gossip", "period": 2}},
    "ring": {"consistency": {"name": "gossip", "graph": "ring"}},
    "random": {"consistency": {"name": "gossip", "graph": "random", "period": 2}},
    "noloco": {
        "consistency": {"name": "gossip", "graph": "pairs", "period": 2, "momentum": 0.5, "lr": 0.7, "gamma": 0.9}
    },
}
WITH_SERVERS: dict[str, dict[str, Any]] = {
    "quorum": {"consistency": LOCAL | {"quorum": 1}},
    "quorum, outer": {"consistency": LOCAL | {"quorum": 1, "outer": OUTER}, "codec": "int8"},
}
LEAVE = 8  # a period ends there, in an epoch


def replicated(rank: int, strategy: dict[str, Any], folder: str, leave: int, attempt: int) -> dict[str, Any]:
    """Call the loop `kept` as a worker over all-reduce; returns its findings."""
    script, recorder, group = Script(function="a.py:loop", strategy=strategy), Recorder(rank), joined(attempt)
    drafts = DirectoryDrafts(Checkpoints(Path(f"../{folder}"), Quick()), recorder, 3, keep_best=False)
    seed_all(1)
    worker = worker_in(script, group, recorder, SimpleNamespace(asked_to_end=False), drafts)
    try:
        found: dict[str, Any] = kept(worker, every=2, leave=leave)
        worker.finish()
        return found
    finally:
        worker.close()


def among_workers(rank: int, world_size: int, strategies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for number, (name, more) in enumerate(strategies.items()):
        strategy, first = {"workers": world_size, **more}, 3 * number
        whole = replicated(rank, strategy, f"whole-{number}", -1, first)
        replicated(rank, strategy, f"cut-{number}", LEAVE, first + 1)
        found[name] = whole, replicated(rank, strategy, f"cut-{number}", -1, first + 2)
    return found


def over_servers(rank: int, world_size: int, strategies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for number, (name, more) in enumerate(strategies.items()):
        strategy = {"workers": world_size - 1, "exchange": {"name": "server", "servers": 1}, **more}
        loop = partial(kept, every=2)
        whole = own_served(rank, world_size, loop, strategy, f"whole-{number}")
        own_served(rank, world_size, partial(loop, leave=LEAVE), strategy, f"cut-{number}")
        again = own_served(rank, world_size, loop, strategy, f"cut-{number}")
        if whole is not None and again is not None:
            found[name] = whole.value, again.value
    return found


def assert_resumed(found: dict[str, Any]) -> None:
    for name, (whole, resumed) in found.items():
        assert resumed["seen"] == whole["seen"][LEAVE:], name
        for key, values in whole["last"].items():
            assert torch.equal(resumed["last"][key], values), f"{name}: {key}"
        assert torch.equal(resumed["drawn"], whole["drawn"]), name


def test_a_few_loops_of_ones_own_go_on_bit_for_bit(workers):
    some = {name: (EVERYWHERE | AMONG_WORKERS)[name] for name in ("sparseloco", "eager")}
    for found in workers(2, among_workers, some):
        assert_resumed(found)


@pytest.mark.slow  # three trainings of each model
@pytest.mark.parametrize("name", [*EVERYWHERE, *AMONG_WORKERS])
def test_over_all_reduce_every_model_goes_on_in_a_loop_of_ones_own_bit_for_bit(workers, name):
    for found in workers(2, among_workers, {name: (EVERYWHERE | AMONG_WORKERS)[name]}):
        assert_resumed(found)


@pytest.mark.slow  # three trainings of each model
@pytest.mark.parametrize("name", [*EVERYWHERE, *WITH_SERVERS])
def test_over_servers_every_model_goes_on_in_a_loop_of_ones_own_bit_for_bit(workers, name):
    comes_and_goes = name in WITH_SERVERS or "elastic" in name
    found, *_ = workers(2 if comes_and_goes else 3, over_servers, {name: (EVERYWHERE | WITH_SERVERS)[name]})
    assert_resumed(found)
