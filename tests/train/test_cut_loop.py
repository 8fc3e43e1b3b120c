"""Loops of one's own whose workers hold parts of a model: as on one worker, saved and resumed by any partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from train import _own_loops
from train._own_workers import worker_in
from train.test_keeping import drafts
from train.test_own_loop import ROUNDING, call
from volary.errors import VolaryError
from volary.run.checkpoints import Checkpoints
from volary.session.script import Script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder

TENSOR, HYBRID = {"partition": "tensor"}, {"partition": "hybrid"}
PIPELINE = {"partition": {"name": "pipeline", "micro_batches": 3}}
STRATEGIES = (TENSOR, HYBRID, PIPELINE)
INSIDE: dict[str, Any] = {"tensor": 2, "hybrid": 2, "pipeline": {"workers": 2, "micro_batches": 3}}
MESHES = [{"partition": {"name": "mesh", "axes": {"data": 2, name: within}}} for name, within in INSIDE.items()]
OUTER: dict[str, Any] = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
PARAMETERS = 8  # of the network below


def network() -> nn.Sequential:
    """Columns, a dropout of what they give, and rows; then a layer of which columns alone are cut."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 3)).double()


def passed(worker: Worker, model: nn.Module, inputs: Any, targets: Any, passes: int = 1) -> torch.Tensor:
    """Forward and backward; the loss. Of a model in stages `worker.learn` alone does it."""
    if len(list(model.parameters())) == PARAMETERS:
        loss = nn.functional.cross_entropy(model(inputs), targets) / passes
        loss.backward()
        return loss.detach()
    return worker.learn(inputs, targets, lambda outputs, own: nn.functional.cross_entropy(outputs, own) / passes)


def stepping(worker: Worker, *, samples: int = 23, passes: int = 1, clip: float | None = None) -> dict[str, Any]:
    """21 steps of 4 samples, or half of two passes; whole states for its code, and what workers find together."""
    model = network()
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model, optimizer = worker.distribute(model, optimizer, passes=passes)
    average = worker.average(model, decay=0.9)
    calls, norms, means = 0, [], []
    for _ in range(3):
        for inputs, targets in worker.feed(_own_loops.points(samples), batch_size=4, shuffle=False):
            loss = passed(worker, model, inputs, targets, passes)
            calls += 1
            means.append(worker.mean(loss))
            if calls % passes:
                continue
            if clip is not None:
                norms.append(float(worker.clip_grad_norm_(model, clip)))
            optimizer.step()
            optimizer.zero_grad()
    remembered = {str(place): entry["exp_avg"] for place, entry in optimizer.state_dict()["state"].items()}
    right = worker.evaluate(lambda batch: (model(batch[0]).argmax(1) == batch[1]).double().mean(), held_out(), 3)

    def judged(batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    with average.applied():
        of_average = worker.evaluate(judged, held_out(), 3)
        lent = {f"lent {name}": one.clone() for name, one in model.state_dict().items()}
    found = {"norms": norms, "means": means, "right": [right, of_average, float(worker.sum(len(targets)))]}
    averages = {f"average {name}": one.clone() for name, one in average.state_dict().items()}
    average.load_state_dict(average.state_dict())
    again = average.state_dict()
    assert all(torch.equal(again[name.removeprefix("average ")], one) for name, one in averages.items())
    found = {name: torch.tensor(one) for name, one in found.items()}
    return {**model.state_dict(), **remembered, **lent, **averages, **found}


def held_out() -> torch.utils.data.TensorDataset:
    return _own_loops.points(7)  # in batches of 3, 3 and 1


PLANNED = (
    {"partition": {"name": "tensor", "plan": {"first": "column"}}},
    {"partition": {"name": "hybrid", "layers": ["first"]}},
)


def read_by_hand(worker: Worker) -> dict[str, Any]:
    """Ten steps of a network that reads a weight by hand."""
    torch.manual_seed(1)
    model = ReadByHand()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2))
    for inputs, targets in worker.feed(_own_loops.points(20), batch_size=2, shuffle=False):
        optimizer.zero_grad()
        worker.learn(inputs, targets, nn.functional.cross_entropy)
        optimizer.step()
    return model.state_dict()


def each_read_by_hand(rank: int, world_size: int, strategies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [call(read_by_hand, rank, world_size, life, strategy=one)[0] for life, one in enumerate(strategies)]


@pytest.mark.slow
def test_a_layer_whose_weight_is_read_by_hand_may_stay_whole_beside_others_that_are_cut(workers):
    (alone,) = each_read_by_hand(0, 1, [{}])
    stages = {"partition": {"name": "pipeline", "micro_batches": 2}}
    for found in workers(2, each_read_by_hand, [*PLANNED, stages]):
        for one in found:
            assert_same(one, alone)


LOOPS: dict[str, dict[str, Any]] = {
    "clipping, and a last batch of one sample": {"samples": 25, "clip": 0.05},
    "accumulating": {"passes": 2},
}


def looped(rank: int, world_size: int, strategies: Sequence[dict[str, Any]], loops: Sequence[str]) -> list[Any]:
    """By strategy and loop: what each ends with, and the losses of its steps."""
    found = []
    for attempt, (strategy, name) in enumerate(product(strategies, loops)):
        settings = LOOPS[name]
        values, recorder = call(
            lambda worker, of=settings: stepping(worker, **of), rank, world_size, attempt, strategy=strategy
        )
        found.append(values | {"losses": torch.tensor([row.loss for row in recorder.rows])})
    return found


def assert_same(found: dict[str, Any], expected: dict[str, Any], rounding: float = ROUNDING) -> None:
    assert found.keys() == expected.keys()
    for entry, tensor in expected.items():
        torch.testing.assert_close(
            found[entry], tensor, rtol=0, atol=rounding, msg=lambda text, entry=entry: f"{entry}: {text}"
        )


SLOW = [pytest.param(n, list(LOOPS), marks=pytest.mark.slow) for n in (3, 4)]


@pytest.mark.parametrize(("world_size", "loops"), [(2, list(LOOPS)[:1]), *SLOW])
def test_loops_whose_workers_hold_parts_of_a_model_equal_one_worker(workers, world_size, loops):
    alone = looped(0, 1, [{}], loops)
    for found in workers(world_size, looped, STRATEGIES, loops):
        for values, expected in zip(found, alone * len(STRATEGIES), strict=True):
            assert_same(values, expected)


@pytest.mark.slow
def test_loops_whose_replicas_are_held_by_groups_equal_one_worker(workers):
    alone = looped(0, 1, [{}], list(LOOPS))
    for found in workers(4, looped, MESHES, list(LOOPS)):
        for values, expected in zip(found, alone * len(MESHES), strict=True):
            assert_same(values, expected)


LOCALLY = [{**one, "consistency": {"name": "local", "period": 3, "outer": OUTER}} for one in MESHES[::2]]


def local_steps(worker: Worker) -> dict[str, Any]:
    """Three epochs of six batches, each of which ends a second period early; what all have then, and Adam's memory."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.02))
    for _ in range(3):
        for inputs, targets in worker.feed(_own_loops.points(23), batch_size=4, shuffle=False):
            optimizer.zero_grad()
            passed(worker, model, inputs, targets)
            worker.clip_grad_norm_(model, 0.5)
            optimizer.step()
    worker.barrier()
    return model.state_dict()


def steps_by_hand() -> dict[str, Any]:
    """The same as two processes would: each on its own samples, and what all have steps against their mean change."""
    common = network()
    outer = torch.optim.SGD(common.parameters(), **{key: value for key, value in OUTER.items() if key != "name"})
    replicas = [network(), network()]
    adams = [torch.optim.Adam(one.parameters(), lr=0.02) for one in replicas]
    inputs, targets = _own_loops.points(23).tensors
    for _ in range(3):
        for first in range(0, 23, 12):
            counts = torch.zeros(2, dtype=torch.double)
            for start in range(first, min(first + 12, 23), 4):
                for at, (replica, adam) in enumerate(zip(replicas, adams, strict=True)):
                    adam.zero_grad()
                    x, y = inputs[start : start + 4][at::2], targets[start : start + 4][at::2]
                    nn.functional.cross_entropy(replica(x), y).backward()
                    nn.utils.clip_grad_norm_(replica.parameters(), 0.5)
                    adam.step()
                    counts[at] += len(x)
            with torch.no_grad():
                for own, *theirs in zip(*(one.parameters() for one in (common, *replicas)), strict=True):
                    changed = [one - own for one in theirs]
                    own.grad = -sum(one * part for one, part in zip(changed, counts / counts.sum(), strict=True))
            outer.step()
            for one in replicas:
                one.load_state_dict(common.state_dict())
    return common.state_dict()


def stepped_locally(rank: int, world_size: int) -> list[dict[str, Any]]:
    return [call(local_steps, rank, world_size, life, strategy=one)[0] for life, one in enumerate(LOCALLY)]


@pytest.mark.slow
def test_groups_that_hold_replicas_take_local_steps_as_written_down(workers):
    expected = steps_by_hand()
    for found in workers(4, stepped_locally):
        for one in found:
            assert_same(one, expected)


class Killed(Exception):
    """Stands for the end of the process."""


def keeping(life: int, folder: str, strategy: dict[str, Any], dropped: float, die: int = -1) -> dict[str, Any]:
    """Two epochs of four steps, saved after each: what it ends with; nothing if it dies after a step."""
    group = joined(life)
    script = Script(program="mine.py", strategy={"workers": group.size, **strategy})
    recorder = Recorder(group.rank)
    pulse = SimpleNamespace(asked_to_end=False)
    worker = worker_in(script, group, recorder, pulse, drafts(Path(f"../{folder}"), recorder))
    model, steps = network().insert(1, nn.Dropout(dropped)), 0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    torch.manual_seed(5 + group.rank * (strategy not in (TENSOR, PIPELINE, {})))
    model, optimizer = worker.distribute(model, optimizer)
    named = {"model": model, "optimizer": optimizer, "average": worker.average(model, decay=0.8)}
    try:
        worker.restore(**named)
        for _ in worker.epochs(2):
            for inputs, targets in worker.feed(_own_loops.points(16), batch_size=4):
                optimizer.zero_grad()
                passed(worker, model, inputs, targets)
                optimizer.step()
                steps += 1
                if steps == die:
                    raise Killed
            worker.save(**named)
        remembered = {str(place): entry["exp_avg"] for place, entry in optimizer.state_dict()["state"].items()}
        averages = {f"average {name}": one for name, one in named["average"].state_dict().items()}
        assert len(averages) == PARAMETERS
        return {**model.state_dict(), **remembered, **averages}
    except Killed:
        return {}
    finally:
        worker.close()


# who writes and who goes on, what is dropped, and how near the ends are: of other partitions others draw the masks
WALKS = {
    "tensor": (TENSOR, TENSOR, 0.25, 0.0),
    "pipeline to tensor": (PIPELINE, TENSOR, 0.0, ROUNDING),
}
MORE_WALKS = {
    "hybrid": (HYBRID, HYBRID, 0.25, 0.0),
    "pipeline": (PIPELINE, PIPELINE, 0.25, 0.0),
    "tensor to data": (TENSOR, {}, 0.0, ROUNDING),
    "data to hybrid": ({}, HYBRID, 0.0, ROUNDING),
    "data to pipeline": ({}, PIPELINE, 0.0, ROUNDING),
}


OF_REPLICAS = {
    **{f"mesh {name}": (one, one, 0.25, 0.0) for name, one in zip(INSIDE, MESHES, strict=True)},
    **{f"local {one['partition']}": (one, one, 0.25, 0.0) for one in LOCALLY},
    "mesh pipeline to hybrid": (MESHES[2], HYBRID, 0.0, ROUNDING),
    "data to mesh hybrid": ({}, MESHES[1], 0.0, ROUNDING),
}


def resumed(_: int, world_size: int, walks: dict[str, Any]) -> dict[str, Any]:
    """Results of each run without a stop, and of the one that continues from its first checkpoint; its last files."""
    found: dict[str, Any] = {}
    for number, (name, (writes, reads, dropped, _)) in enumerate(walks.items()):
        whole = keeping(3 * number, f"{name} whole", writes, dropped)
        keeping(3 * number + 1, name, writes, dropped, die=6)
        again = keeping(3 * number + 2, name, reads, dropped)
        files = sorted(one.name for one in Checkpoints(Path(f"../{name}")).path(8).iterdir())
        found[name] = whole, again, [one for one in files if one.startswith(("model", "optimizer"))]
    return found


@pytest.mark.parametrize("walks", [WALKS, pytest.param(MORE_WALKS, marks=pytest.mark.slow)], ids=["some", "more"])
def test_who_holds_parts_writes_parts_and_every_partition_goes_on_from_them(workers, walks):
    for found in workers(2, resumed, walks):
        for name, (_, reads, _, rounding) in walks.items():
            whole, again, files = found[name]
            assert_same(again, whole, rounding)
            parts = [
                *("model-worker-0.safetensors", "model-worker-1.safetensors"),
                *("optimizer-worker-0.pt", "optimizer-worker-1.pt"),
            ]
            assert files == (parts if reads else ["model.safetensors"]), "nobody writes a network that nobody has"


@pytest.mark.slow
def test_who_holds_parts_of_a_replica_goes_on_bit_for_bit_and_with_other_partitions(workers):
    for found in workers(4, resumed, OF_REPLICAS):
        for name, (_, reads, _, rounding) in OF_REPLICAS.items():
            whole, again, files = found[name]
            assert_same(again, whole, rounding)
            if reads != HYBRID:
                assert [one for one in files if one.startswith("model")] == [
                    "model-worker-0.safetensors",
                    "model-worker-1.safetensors",
                ], "each part once"


def learn(
    worker: Worker,
    between: Callable[[Any, Any], Any] = lambda *_: None,
    make: Callable[[Any], Any] = lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    fed: bool = True,
    named: bool = True,
    early_update: bool | None = None,
    learns: bool = False,
    loss: Callable[[Any, Any], torch.Tensor] = nn.functional.cross_entropy,
    of: Callable[[], nn.Module] = network,
    decay: float = 0.0,
) -> None:
    """One step. between: what the loop does before it."""
    model = of()
    optimizer = make(model.parameters())
    worker.distribute(*[model, optimizer][: 1 + named], early_update=early_update)
    data = _own_loops.points(4)
    for inputs, targets in worker.feed(data, batch_size=4) if fed else torch.utils.data.DataLoader(data, 4):
        if learns:
            worker.learn(inputs, targets, loss)
        else:
            (loss(model(inputs), targets) + (decay and decay * model[0].weight.square().sum())).backward()
        between(worker, model)
        optimizer.step()


class ReadByHand(nn.Module):
    """Its forward reads the weight of a layer, and does not call the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8).double(), nn.Linear(8, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh().to(self.last.weight.dtype)  # which is no value, and may be looked at
        return nn.functional.linear(hidden, self.last.weight, self.last.bias)


MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a gradient was used between backward() and optimizer.step(), and with partition=tensor a worker has those of its "
    "part of a layer alone; accepted: worker.clip_grad_norm_(model, max_norm)": (
        TENSOR,
        {"between": lambda _, model: nn.utils.clip_grad_norm_(model.parameters(), 1.0)},
    ),
    "the loop does not get its batches from worker.feed; accepted: worker.feed(loader)": (TENSOR, {"fed": False}),
    "nothing says that Adafactor updates each value on its own, and workers have parts of parameters": (
        HYBRID,
        {"make": torch.optim.Adafactor},
    ),
    "and worker.distribute was not given it; accepted: worker.distribute(model, optimizer)": (
        HYBRID,
        {"named": False},
    ),
    "workers hold parts of the first one; accepted: one model, once, as torch.nn.ModuleList": (
        TENSOR,
        {"between": lambda worker, _: worker.distribute(network())},
    ),
    "worker.average was called twice, and with partition=hybrid workers save one average of the parts": (
        HYBRID,
        {"between": lambda worker, model: [worker.average(model) for _ in range(2)]},
    ),
    "with partition=pipeline a worker has some layers of the model, which gives no output in training; accepted: "
    "loss = worker.learn(inputs, targets, loss_function)": (PIPELINE, {}),
    "worker.weigh: with partition=pipeline a batch passes in micro-batches": (
        PIPELINE,
        {"between": lambda worker, _: worker.weigh(3), "learns": True},
    ),
    "worker.learn: the loss function gave a tensor of shape (2,); accepted: a tensor of one value": (
        {},
        {"learns": True, "loss": lambda outputs, _: outputs.sum(1)},
    ),
    "the network's forward uses last.weight outside of last, and with partition=hybrid a worker has a part of it; "
    "accepted: strategy.partition.layers without last, or partition=data": (HYBRID, {"of": ReadByHand}),
    "they should be equal: some code reads the weight of a layer that is cut": (TENSOR, {"decay": 1.0}),
    "the network's forward uses last.weight outside of last, and with partition=tensor": (TENSOR, {"of": ReadByHand}),
    "early_update is true, and with partition=tensor each step updates parts of layers": (
        TENSOR,
        {"early_update": True},
    ),
}


def mistaken(rank: int, world_size: int) -> list[str]:
    found = []
    for life, (strategy, how) in enumerate(MISTAKES.values()):
        try:
            call(lambda worker, how=how: learn(worker, **how), rank, world_size, life,
                 strategy=strategy)  # fmt: skip
        except VolaryError as error:
            found.append(str(error))
    return found


def test_what_parts_do_not_allow_is_said_in_a_sentence_on_all_workers(workers):
    for found in workers(2, mistaken):
        assert len(found) == len(MISTAKES)
        for said, expected in zip(found, MISTAKES, strict=True):
            assert expected in said
