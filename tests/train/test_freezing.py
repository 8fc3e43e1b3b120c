"""Layers that are frozen neither travel nor change; they are thawed at a step that all ranks agree on, also resumed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from _workers import alone, joined
from train._served import Kept, served
from train._training import Quick, Trained, looked_at, session
from train.test_cut_served import INSIDE, cut
from train.test_served import over
from volary.driver.servers.settings import roster_settings
from volary.errors import SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Session
from volary.session.train_section import Freeze
from volary.train.freezing import freeze
from volary.train.lockstep.lockstep import Lockstep
from volary.train.loop import Training
from volary.train.model import build_model
from volary.train.recording.recorder import Recorder
from volary.train.served.layout import lay_out
from volary.train.state.drafts import DirectoryDrafts
from volary.train.state.seeds import seed_all
from volary.train.state.weights import SavedWeights
from volary.train.worker.build import assemble
from volary.train.worker.stages import train_stages

STEPS, THAW = 12, 5
ADAM = {"name": "adam", "lr": 0.02}
_lives = itertools.count()
STRATEGIES: dict[str, dict[str, Any]] = {
    "as sums arrive": {"exchange": {"name": "allreduce", "route": "ring"}},
    "local": {"consistency": {"name": "local", "period": 2}},
    "level 3": {"exchange": {"name": "allreduce", "route": "ring"}, "partition": {"name": "sharded", "level": 3}},
}
MORE: dict[str, dict[str, Any]] = {
    "in shared memory": {"exchange": {"name": "allreduce", "route": "shared"}},
    "gossip": {"consistency": "gossip"},
    "level 1": {"exchange": {"name": "allreduce", "route": "ring"}, "partition": "sharded"},
    "level 2": {"exchange": {"name": "allreduce", "route": "ring"}, "partition": {"name": "sharded", "level": 2}},
    "tensor": {"partition": "tensor"},
    "pipeline": {"partition": "pipeline"},
    "hybrid": {"partition": "hybrid"},
    "encoded": {"codec": "topk"},
    "factors": {"codec": "factors"},
}


def frozen(strategy: dict[str, Any], **settings: Any) -> Session:
    """A session in whose network a layer is trained from step THAW on, and one never."""
    rules = [{"match": "layers.0", "until": f"{THAW} steps"}, {"match": "layers.2.bias"}]
    return session("Deep", strategy=strategy, optimizer=ADAM, train={"steps": STEPS, "freeze": rules}, **settings)


def staged(
    rank: int, size: int, one: Session, folder: str, *, until: Callable[[int], bool] = lambda _: False
) -> Trained:
    """Train in stages, as a worker does. until: ends it after such a step."""
    group, recorder, cpu = joined(next(_lives)) if size > 1 else alone(), Recorder(rank), torch.device("cpu")
    Path(folder).mkdir(exist_ok=True)
    drafts = DirectoryDrafts(Checkpoints(Path(folder).absolute(), Quick()), recorder, 20, keep_best=False)
    last: list[Training[Lockstep]] = []

    def models(_: int) -> Any:
        seed_all(one.train.seed)
        return build_model(one, cpu)

    def put_together(model: Any, own: Any) -> Training[Lockstep]:
        made = assemble(
            model,
            group=own,
            device=cpu,
            recorder=recorder,
            drafts=drafts,
            asked_to_end=lambda: until(recorder.step + 1),
        )
        last[:] = [made]
        return made

    outcome = train_stages(models, group, drafts, recorder, put_together)
    return looked_at(last[0], outcome)


def saved(folder: str) -> list[dict[str, torch.Tensor]]:
    """The weights in each checkpoint of a run, the oldest first."""
    checkpoints = Checkpoints(Path(folder).absolute())
    found = [SavedWeights(checkpoints.path(step), checkpoints.manifest(step)) for step in checkpoints.steps()]
    return [{name: one.whole(name).clone() for name in one} for one in found]


def resumed_at(rank: int, size: int, names: list[str]) -> dict[str, list[dict[str, torch.Tensor]]]:
    """Each strategy uninterrupted, and ended before, at and after the thaw and resumed: what checkpoints hold."""
    for name in names:
        one = frozen((STRATEGIES | MORE)[name] | {"workers": size})
        rows = staged(rank, size, one, f"{name} whole").rows
        if name == "as sums arrive":  # what is frozen does not travel
            sent = [one.sent_bytes for one in rows]
            assert sum(sent[:THAW]) / THAW < sum(sent[THAW:]) / (STEPS - THAW), sent
        thaw = Checkpoints(Path(f"{name} whole").absolute()).steps()[0]
        for end in (-1, 0, 1):
            staged(rank, size, one, f"{name} {end}", until=lambda step, at=thaw + end: step >= at)
            staged(rank, size, one, f"{name} {end}")
    return {f"{name} {end}": saved(f"{name} {end}") for name in names for end in ("whole", -1, 0, 1) if not rank}


def check(found: dict[str, list[dict[str, torch.Tensor]]], names: list[str]) -> None:
    seed_all(1)
    first = build_model(frozen({}), torch.device("cpu")).module.state_dict()
    for name in names:
        thaw, end = found[f"{name} whole"]
        for parameter in ("layers.0.weight", "layers.0.bias"):
            assert torch.equal(thaw[parameter], first[parameter]), name
            assert not torch.equal(end[parameter], first[parameter]), name
        assert torch.equal(end["layers.2.bias"], first["layers.2.bias"])
        assert not torch.equal(thaw["layers.2.weight"], first["layers.2.weight"])
        for ended in (-1, 0, 1):
            again = found[f"{name} {ended}"][-1]
            assert all(torch.equal(again[key], end[key]) for key in end), (name, ended)


def test_a_layer_is_thawed_at_its_step_also_of_runs_resumed_around_it(workers):
    names = list(STRATEGIES)
    check(workers(2, resumed_at, names)[0], names)


@pytest.mark.slow  # the same with every other strategy
def test_so_it_is_with_every_strategy_in_lock_step(workers):
    names = list(MORE)
    check(workers(2, resumed_at, names)[0], names)


def thawed_over_servers(rank: int, size: int, consistency: Any) -> dict[str, tuple[Kept, dict[str, torch.Tensor]]]:
    """Over a server: whole, and ended before, at and after the thaw and resumed; with the last weights but one."""
    one = frozen({"workers": 2, "exchange": {"name": "server", "servers": 1}, "consistency": consistency})
    found = {"whole": served(rank, size, one, "whole")}
    elastic = one.strategy.consistency.elastic  # who is asked to end there leaves, and the others go on
    for end in () if elastic else (-1, 0, 1):
        served(rank, size, one, f"end{end}", dict.fromkeys(range(2), THAW + end))
        found[f"end{end}"] = served(rank, size, one, f"end{end}")
    return {name: (kept, saved(f"runs/{name}/checkpoints")[-2]) for name, kept in found.items() if kept and not rank}


def test_servers_thaw_a_layer_at_an_update_also_of_runs_resumed_around_it(workers):
    found = workers(3, thawed_over_servers, "bsp")[0]
    whole, at_thaw = found["whole"]
    assert (whole.run_outcome, whole.steps) == ("finished", [THAW, STEPS])
    assert [event["data"]["parameters"] for event in whole.worker_said if event.get("event") == "thawed"] == [
        ["layers.0.weight", "layers.0.bias"]
    ]
    for name, (kept, _) in found.items():
        assert all(torch.equal(kept.parameters[key], one) for key, one in whole.parameters.items()), name
    staged(0, 1, frozen({"workers": 1}), "one")
    thaw, end = saved("one")
    for key, values in whole.parameters.items():
        torch.testing.assert_close(at_thaw[key], thaw[key], rtol=0, atol=1e-5)
        torch.testing.assert_close(values, end[key], rtol=0, atol=1e-5)


@pytest.mark.slow  # the same with other consistency models, where what is frozen is the same
@pytest.mark.parametrize("consistency", ["async", "ssp", "backup", {"name": "local", "period": 2}, "elastic"])
def test_so_they_do_with_every_consistency_model(consistency, workers):
    seed_all(1)
    first = build_model(frozen({}), torch.device("cpu")).module.state_dict()
    found = workers(3, thawed_over_servers, consistency)[0]
    whole, at_thaw = found["whole"]
    assert whole.steps == [THAW, STEPS]
    assert torch.equal(at_thaw["layers.0.weight"], first["layers.0.weight"])
    for name, (kept, _) in found.items():
        assert kept.parameters["layers.0.weight"].isfinite().all(), name
        assert not torch.equal(kept.parameters["layers.0.weight"], first["layers.0.weight"]), name
        assert torch.equal(kept.parameters["layers.2.bias"], first["layers.2.bias"]), name


def thawed_in_parts(rank: int, size: int, inside: str) -> Kept | None:
    """Two replicas, each of two workers, over a server."""
    return served(rank, size, replace(frozen({}), strategy=cut(inside, 2, 1)), "whole")


@pytest.mark.slow  # five processes
@pytest.mark.parametrize("inside", INSIDE)
def test_servers_thaw_a_layer_of_replicas_in_parts(inside, workers):
    whole = workers(5, thawed_in_parts, inside)[0]
    assert (whole.run_outcome, whole.steps) == ("finished", [THAW, STEPS])
    staged(0, 1, frozen({"workers": 1}), "one")
    for key, values in saved("one")[-1].items():
        torch.testing.assert_close(whole.parameters[key], values, rtol=0, atol=1e-5)


def test_what_is_frozen_is_none_of_what_servers_keep():
    one = over(session("Deep", train={"steps": 1, "freeze": [{"match": "layers.0"}]}), 2, 1)
    kept = lay_out(build_model(one, torch.device("cpu")))
    assert set(kept.tensors) == {"layers.2.weight", "layers.2.bias", "layers.4.weight", "layers.4.bias"}
    later = over(session("Deep", train={"freeze": [{"match": "layers.0", "until": "2 epochs"}]}), 2, 1)
    assert [roster_settings(later).thaws(per_epoch) for per_epoch in (3, 4)] == [(6,), (8,)]


def test_the_first_rule_that_fits_counts_and_statistics_stand_still_if_asked():
    module = nn.ModuleDict({"a": nn.BatchNorm1d(2), "b": nn.BatchNorm1d(2), "c": nn.Linear(2, 2)})
    keep = Freeze(match="a", statistics="keep", until="3 epochs")
    found = freeze(module, [keep, Freeze(match="*", until="4 epochs")])
    assert [module["a"].training, module["b"].training] == [False, True]
    assert not any(one.requires_grad for one in module.parameters())
    assert found.thaws_at(10) == (30, 40)
    assert found.thaw(module, 29, 10) == []
    assert found.thaw(module, 30, 10) == ["a.weight", "a.bias"]
    assert module["a"].training and module["a"].weight.requires_grad and not module["c"].weight.requires_grad
    module.requires_grad_(False)
    assert freeze(module, [Freeze(match="c", until="1 step")]).thaw(module, 1, 10) == []  # the network's own affair
    with pytest.raises(SettingError, match="match is 'layer1', which fits no parameter"):
        freeze(module, [Freeze(match="layer1")])
