"""Training loops of a user's own, as `volary.launch` names them in these tests."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, FEATURES = 3, 5


def points(samples: int = 23) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(samples, FEATURES, generator=generator).double()
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


def plain(
    worker: Any,
    *,
    samples: int = 23,
    passes: int = 1,
    clip: float | None = None,
    scaled: bool = False,
    set_to_none: bool = True,
) -> dict[str, Any]:
    """20 steps and more: 4 epochs of 6 batches, the last of 3 samples; in groups of `passes` batches a step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer = worker.distribute(model, optimizer, passes=passes)
    loader, scaler = worker.feed(points(samples), batch_size=4), torch.amp.GradScaler("cpu", enabled=scaled)
    seen, norms, calls = [], [], 0
    for _ in range(4):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets) / passes
            scaler.scale(loss).backward()
            calls += 1
            seen.append((len(inputs), bool(loss.isfinite())))
            if calls % passes:
                continue
            scaler.unscale_(optimizer)
            if clip is not None:
                norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip)))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=set_to_none)
    return {"state": model.state_dict(), "seen": seen, "norms": norms}


def idling(worker: Any) -> dict[str, Any]:
    """The last of 7 batches has one sample: all workers but the first have none."""
    return plain(worker, samples=25)


def accumulating(worker: Any) -> dict[str, Any]:
    return plain(worker, passes=2)


def clipping(worker: Any) -> dict[str, Any]:
    return plain(worker, clip=0.05)


def zeroing(worker: Any) -> dict[str, Any]:
    """Keeps its gradients, set to zero: autograd adds the next ones to them in place."""
    return plain(worker, set_to_none=False)


def scaling(worker: Any) -> dict[str, Any]:
    return plain(worker, scaled=True)


def leaving_early(worker: Any) -> list[Any]:
    """Leaves an epoch by `break`: the next `for` is a new one."""
    loader = worker.feed(points(), batch_size=4)
    found = []
    for _ in range(2):
        for inputs, _ in loader:
            found.append(inputs[:, 0].tolist())
            break
    return [len(loader), found]


def two_feeds(worker: Any) -> list[list[float]]:
    """Two loaders at the same time, of 6 batches each."""
    found: list[list[float]] = [[], []]
    for _ in range(2):
        pairs = zip(worker.feed(points(), batch_size=4), worker.feed(points(21), batch_size=4), strict=True)
        for batches in pairs:
            for mine, (inputs, _) in zip(found, batches, strict=True):
                mine += inputs[:, 0].tolist()
    return found


def recording(worker: Any) -> Any:
    """Values of every kind, and metrics."""
    worker.record(accuracy=0.5 + worker.rank, loss=torch.tensor(2.0))
    return {"rank": worker.rank, "of": worker.world_size, "tensor": torch.arange(3), "text": ["a", (1, 2.5, None)]}


def given(worker: Any, settings: Any, start: Any, rate: float = 0.1, more: Any = None) -> list[Any]:
    """The arguments that it was launched with."""
    return [settings.width, settings.name, start.tolist(), rate, more]


def returning_a_module(worker: Any) -> Any:
    return network()


def asking_too_much(worker: Any) -> str:
    try:
        worker.feed(points(9), batch_size=1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def stopping(worker: Any) -> int:
    """Goes on until it is asked to end."""
    from volary.errors import Stopped

    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    steps = 0
    try:
        while True:
            for inputs, _ in worker.feed(points(), batch_size=4):
                model(inputs).square().mean().backward()
                optimizer.step()
                steps += 1
    except Stopped:
        Path(f"saved-{worker.rank}").write_text(str(steps + 1))
        raise


def failing(worker: Any) -> float:
    return 1 / (worker.rank - worker.rank)


def normalising(worker: Any) -> list[float]:
    """A network with batch norm, whose statistics each rank then finds."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)).double()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for inputs, targets in worker.feed(points(24), batch_size=8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return [*model[1].running_mean.tolist(), *model[1].running_var.tolist()]


def refused(worker: Any) -> str:
    """The refusal of distribute of a model that it cannot take."""
    try:
        worker.distribute(nn.LazyLinear(3))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def parting(worker: Any) -> None:
    """Ranks come to different calls."""
    assert worker.sum(1) == worker.world_size
    if worker.is_first:
        worker.mean(torch.ones(3))
    else:
        worker.gather("here")


def as_a_session(worker: Any, model: nn.Module, data: Any) -> dict[str, Any]:
    """20 steps of 10 samples, as `_training.session` has them, with a loader of torch's."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, fused=True)
    model, optimizer = worker.distribute(model, optimizer)
    loader = worker.feed(DataLoader(data, batch_size=10))
    for _ in range(20 // len(loader)):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def passing_once_more(worker: Any) -> None:
    """In the third step one worker calls backward twice."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (inputs, _) in enumerate(worker.feed(points(), batch_size=4)):
        for _ in range(1 + (step == 2 and worker.is_first)):
            model(inputs).square().mean().backward()
        optimizer.step()


def leaving_a_batch_out(worker: Any) -> None:
    """The third batch is not to one worker's taste."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for number, (inputs, _) in enumerate(worker.feed(points(), batch_size=4)):
        if number == 2 and not worker.is_first:
            continue
        model(inputs).square().mean().backward()
        optimizer.step()


class Drawn(torch.utils.data.Sampler[int]):
    """Each rank's would draw in another order."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return 23

    def __iter__(self) -> Any:
        return iter(torch.randperm(23, generator=self.generator).tolist())


def drawing(worker: Any) -> list[int]:
    """Batches of dictionaries through a network with batch norm; the last of each epoch has 3 samples."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)).double()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    samples = [{"x": x, "y": y, "number": number} for number, (x, y) in enumerate(points())]
    loader, seen = worker.feed(DataLoader(samples, batch_size=4, sampler=Drawn(worker.rank))), []
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch["x"]), batch["y"]).backward()
            optimizer.step()
            seen.append(batch["number"].tolist())
    return [seen, len(loader.dataset)]


def skewing(worker: Any) -> int:
    """In the third step a bit of rank 1's parameters is another one."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (inputs, targets) in enumerate(worker.feed(points(), batch_size=4)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        if step == 2 and worker.rank == 1:
            with torch.no_grad():
                model[2].bias[0] += 1e-15
        optimizer.step()
    return step


def warming(worker: Any, *, fed: bool = True) -> None:
    """A layer that is large enough for a codec."""
    torch.manual_seed(1)
    model = nn.Linear(64, 32)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    data = TensorDataset(torch.randn(32, 64), torch.randn(32, 32))
    batches = worker.feed(data, batch_size=8) if fed else DataLoader(data, batch_size=8)
    for inputs, targets in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def changing(worker: Any) -> None:
    """Its model is distributed anew twice: one of its layers is replaced, and it is given again."""
    model = worker.distribute(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (inputs, labels) in enumerate(worker.feed(points(28), batch_size=4), 1):
        if step == 5:
            model = worker.distribute(model)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if step == 2:
            model[2] = nn.Linear(8, CLASSES).double()
            optimizer.param_groups[0]["params"] = list(model.parameters())


def warming_unfed(worker: Any) -> None:
    warming(worker, fed=False)


def raising(worker: Any) -> None:
    """A closure that fails in the first of 5 steps, which the loop survives."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step, (inputs, _) in enumerate(worker.feed(points(20), batch_size=4)):

        def closure(step: int = step, inputs: torch.Tensor = inputs) -> torch.Tensor:
            if step == 0:
                raise ArithmeticError("not today")
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            return loss.detach()

        with contextlib.suppress(ArithmeticError):
            optimizer.step(closure)


def finding_out(worker: Any) -> dict[str, Any]:
    """Figures that workers find together; 7 samples are held out, of which the last batch of 4 has 3."""
    model = network()
    model, _ = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    inputs, targets = next(iter(worker.feed(points(3), batch_size=3, shuffle=False)))
    loss = nn.functional.cross_entropy(model(inputs), targets)
    worker.barrier()

    def figures(batch: Any) -> dict[str, Any]:
        assert not model.training
        outputs = model(batch[0])
        right = (outputs.argmax(1) == batch[1]).double().mean()
        return {"loss": nn.functional.cross_entropy(outputs, batch[1]), "accuracy": right}

    held_out = DataLoader(points(7), batch_size=4)
    found = {
        "loss": float(worker.mean(loss)),
        "held out": worker.evaluate(figures, held_out),
        "alone": worker.evaluate(lambda batch: batch[1].double().mean(), points(7), 4),
    }
    assert model.training
    assert worker.sum(1) == worker.world_size
    assert worker.sum(torch.tensor([1, 2])).tolist() == [worker.world_size, 2 * worker.world_size]
    assert worker.gather({"rank": worker.rank}) == [{"rank": rank} for rank in range(worker.world_size)]
    ragged = worker.gather(torch.full((worker.rank, 2), worker.rank))
    assert [one.tolist() for one in ragged] == [[[rank] * 2] * rank for rank in range(worker.world_size)]
    assert worker.is_first == (worker.rank == 0)
    return found | {"metrics": metrics(worker)}


def metrics(worker: Any) -> dict[str, Any]:
    """Metrics of 7 samples, which the workers have unevenly; those of top2 are all on the first one."""
    generator = torch.Generator().manual_seed(5)
    outputs, targets = torch.randn(7, 3, generator=generator), torch.tensor([0, 1, 2, 0, 1, -100, 0])
    places = [place for place, rank in enumerate((0, 1, 2, 0, 1, 0, 0)) if rank % worker.world_size == worker.rank]
    own = [outputs[place : place + 1] for place in places], [targets[place : place + 1] for place in places]
    values = worker.metric("r2", [one[:, 0] for one in own[0]], [one[:, 1] for one in own[0]])
    return {
        "f1": worker.metric("f1", *own),
        "top2": worker.metric("topk", *((outputs, targets) if worker.is_first else ([], [])), k=2),
        "r2": values,
        "confusion": worker.metric("confusion", *own),
        "of nothing": worker.metric("f1", [], []),
    }
