"""Each update over servers where positions count unevenly, by consistency model.

The loss's gradient is the same whatever the parameters are, so that sums over a run are known afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from train._served import served
from train._training import USER_LOSSES, Quick, made, session
from train.test_served import over
from volary.server.roster.work import Closed, WorkScheduler
from volary.session import Session
from volary.train.model import build_model

BATCH, STEPS, LR, WORKERS = 4, 12, 0.1, 2  # six batches an epoch, of which two have nothing that counts
MODELS: dict[str, Any] = {
    "bsp": "bsp",
    "backup": {"name": "backup", "k": 1},
    "ssp": {"name": "ssp", "staleness": 2},
    "async": "async",
}
TOGETHER = ("bsp", "backup")  # whose updates are means over what counts in all their contributions


def uneven(bits: int = 64, data: Mapping[str, Any] = {}, **more: Any) -> Session:
    source, train = {"name": "Uneven", **data}, {"steps": STEPS, **more.pop("train", {})}
    return session(
        "Scores", of={"bits": bits}, source=source, loss=f"{USER_LOSSES}:sloping", batch_size=BATCH, shuffle=False,
        optimizer={"name": "sgd", "lr": LR}, train=train, **more,
    )  # fmt: skip


def gradients(one: Session, batches: list[list[int]]) -> list[dict[str, Tensor]]:
    """Gradients of the means over all that counts of these samples; zero if nothing does, or it was not used."""
    model = build_model(one, torch.device("cpu"))
    flow, named, found = model.flow("train"), dict(model.module.named_parameters()), []
    for numbers in batches:
        inputs, targets = model.samples.fetch(torch.tensor(numbers))
        loss = flow(inputs, targets) if flow.counted(targets) else flow.nothing()
        slopes = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
        found.append(dict(zip(named, slopes, strict=True)))
    return found


def begun_with(one: Session) -> dict[str, Tensor]:
    module = made(0, 1, one, "begun", disk=Quick()).flow.module
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@contextmanager
def closed_updates() -> Iterator[list[list[int]]]:
    """Yield the samples of each update's contributions, in the process that hosts the roster."""
    updates: list[list[int]] = []
    close = WorkScheduler._close_one

    def closing(work: WorkScheduler, step: Any) -> Closed:
        portions = [portion for one in step.contributions for portion in work._tasks[one].portions]
        updates.append([number for portion in portions for number in range(portion.start, portion.end)])
        return close(work, step)

    WorkScheduler._close_one = closing  # type: ignore[method-assign]
    try:
        yield updates
    finally:
        WorkScheduler._close_one = close  # type: ignore[method-assign]


def recorded(rank: int, world_size: int) -> dict[str, Any]:
    """By model, what servers kept, and of each update the samples of its contributions."""
    found: dict[str, Any] = {}
    for name, model in MODELS.items():
        with closed_updates() as updates:
            kept = served(rank, world_size, over(uneven(), WORKERS, 1, model), name)
        found[name] = kept and (kept.parameters, updates)
    return found


@pytest.mark.slow  # test_positions.py has means over positions
def test_an_update_over_servers_is_what_the_docs_say_whatever_came_in_which_order(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = begun_with(uneven())
    for name, (parameters, updates) in workers(WORKERS + 1, recorded)[0].items():
        updates = [samples for samples in updates if samples]
        shares = [1.0 if name in TOGETHER else len(samples) / BATCH for samples in updates]
        assert sum(map(len, updates)) >= STEPS * BATCH / WORKERS
        means = gradients(uneven(), updates)
        for parameter, values in begun.items():
            learnt = sum(share * mean[parameter] for share, mean in zip(shares, means, strict=True))
            torch.testing.assert_close(parameters[parameter], values - LR * learnt, rtol=0, atol=1e-11, msg=name)
