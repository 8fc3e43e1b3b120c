"""`worker.feed` among workers: what a loop counts is what one process counts, in the order that the program seeds."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from train._own_loops import network, points
from train._own_served import own_served
from train.test_own_loop import ROUNDING, call

LOADERS = {
    "23 in batches of 4": lambda: DataLoader(points(23), batch_size=4, shuffle=True),
    "25 in batches of 4": lambda: DataLoader(points(25), batch_size=4),
    "17 in batches of 8": lambda: DataLoader(points(17), batch_size=8, shuffle=True),
    "5 in batches of 1": lambda: DataLoader(points(5), batch_size=1, shuffle=True),
    "1 in a batch of 4": lambda: DataLoader(points(1), batch_size=4),
    "10 that are drawn": lambda: DataLoader(points(9), 4, sampler=WeightedRandomSampler([1.0, 2.0, 3.0] * 3, 10)),
    "batches that are drawn": lambda: DataLoader(
        points(9), batch_sampler=BatchSampler(RandomSampler(range(9)), 4, False)
    ),
}
SIZES = {name: loader for name, loader in LOADERS.items() if "drawn" not in name}


def counting(worker: Any, made: Any, *, learning: bool) -> dict[str, Any]:
    """Sums that programs form over an epoch, as in any tutorial, with a network or without one."""
    torch.manual_seed(7)
    model = network()
    if learning:
        model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    loader, totals, means = made(), [0.0] * 5, []
    for _ in range(2):
        for inputs, labels in worker.feed(loader):
            scores = model(inputs)
            loss = functional.cross_entropy(scores, labels)
            if learning:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            own = (len(labels), labels.sum().item(), inputs.sum().item(), loss.item() * inputs.size(0))
            totals = [
                total + one for total, one in zip(totals, (*own, (scores.argmax(1) == labels).sum()), strict=True)
            ]
            means.append(worker.mean(loss.detach()))
            assert worker.sum(len(labels)) <= loader.batch_size if loader.batch_size else True
    summed = [float(worker.sum(total)) for total in totals]
    found = worker.evaluate(lambda batch: {"loss": functional.cross_entropy(model(batch[0]), batch[1])}, points(5), 1)
    return {
        "totals": torch.tensor(summed),
        "means": torch.stack(means),
        "held out": found["loss"],
        **model.state_dict(),
    }


def count(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name, made in LOADERS.items():
        for learning in (False, True):
            loop: Any = lambda worker, made=made, learning=learning: counting(worker, made, learning=learning)  # noqa: E731
            found[f"{name}, learning: {learning}"], _ = call(loop, rank, world_size, len(found), strategy=strategy)
    return found


@pytest.mark.parametrize(
    ("world_size", "strategy"),
    [
        pytest.param(2, {}, marks=pytest.mark.slow),
        (3, {}),
        pytest.param(3, {"codec": "factors"}, marks=pytest.mark.slow),
    ],
)
def test_what_a_loop_counts_is_what_one_process_counts_and_learns(workers, world_size, strategy):
    (alone,) = workers(1, count, {})
    for found in workers(world_size, count, strategy):
        for name, expected in alone.items():
            for key, value in expected.items():
                torch.testing.assert_close(
                    found[name][key],
                    value,
                    rtol=0,
                    atol=10 * ROUNDING,
                    msg=lambda text, at=f"{name}: {key}": f"{at}: {text}",
                )


def count_local(rank: int, world_size: int) -> list[float]:
    """Workers that update themselves: what they count is right, whatever they learn."""
    loops = [lambda worker, made=made: counting(worker, made, learning=True) for made in LOADERS.values()]
    strategy = {"consistency": {"name": "local", "period": 2}}
    found = [call(loop, rank, world_size, attempt, strategy=strategy)[0] for attempt, loop in enumerate(loops)]
    assert all(bool(one["totals"].isfinite().all()) for one in found)
    return [float(one["totals"][0]) for one in found]


@pytest.mark.slow  # others that count come above
def test_workers_that_update_themselves_count_each_sample_once(workers):
    assert workers(3, count_local) == [[46.0, 50.0, 34.0, 10.0, 2.0, 20.0, 18.0]] * 3


def count_served(rank: int, world_size: int) -> list[list[float]]:
    strategy = {"workers": world_size - 1, "exchange": {"name": "server", "servers": 1}}
    found = []
    for number, made in enumerate([LOADERS["25 in batches of 4"], LOADERS["5 in batches of 1"]]):
        loop: Any = lambda worker, made=made: counting(worker, made, learning=True)  # noqa: E731
        ended = own_served(rank, world_size, loop, strategy, f"count-{number}")
        found.append(ended.value["totals"].tolist()[:3] if rank < world_size - 1 else [])
    return found


@pytest.mark.slow  # over all-reduce above
def test_over_servers_workers_count_each_sample_once(workers):
    (alone,) = workers(1, count, {})
    expected = [alone[f"{name}, learning: True"]["totals"] for name in ("25 in batches of 4", "5 in batches of 1")]
    for found in workers(3, count_served)[:2]:
        for totals, wanted in zip(found, expected, strict=True):
            assert totals == pytest.approx(wanted.tolist()[:3], abs=1e-5)


def order(made: Any, seed: int, worker: Any = None) -> list[list[float]]:
    """The samples of each batch of three epochs, between which other numbers are drawn."""
    torch.manual_seed(seed)
    loader, found = made(), []
    for _ in range(3):
        for inputs, _ in loader if worker is None else worker.feed(loader):
            rows = inputs[:, 0].tolist()
            found.append(sorted(rows if worker is None else chain.from_iterable(worker.gather(rows))))
            torch.rand(2)
    return found


ORDERED = {
    **LOADERS,
    "with a generator": lambda: DataLoader(points(9), 4, shuffle=True, generator=torch.Generator().manual_seed(5)),
    "of a subset": lambda: DataLoader(points(9), 4, sampler=SubsetRandomSampler([1, 3, 5, 7, 8])),
}


def draw(rank: int, world_size: int) -> dict[str, list[list[float]]]:
    found = {}
    for name, made in ORDERED.items():
        for seed in (1, 2):  # workers but the first have seeds of their own
            loop: Any = lambda worker, made=made, seed=seed: order(made, seed + 10 * worker.rank, worker)  # noqa: E731
            found[f"{name}, {seed}"] = call(loop, rank, world_size, len(found))[0]
    return found


def test_the_order_is_what_the_first_workers_loader_draws_without_volary(workers):
    for found in workers(2, draw):
        for name, made in ORDERED.items():
            assert found[f"{name}, 1"] == order(made, 1), name
            assert found[f"{name}, 2"] == order(made, 2), name
    assert order(LOADERS["23 in batches of 4"], 1) != order(LOADERS["23 in batches of 4"], 2)


def compiled(worker: Any) -> Tensor:
    """A compiled network meets a batch without samples."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2))
    for inputs, labels in worker.feed(points(9), batch_size=4, shuffle=False):
        optimizer.zero_grad()
        functional.cross_entropy(torch.compile(model, backend="eager")(inputs), labels).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def compile_it(rank: int, world_size: int) -> Tensor:
    return call(compiled, rank, world_size, 0)[0]


@pytest.mark.slow  # torch's compiler takes its time
def test_a_compiled_network_takes_a_batch_without_samples(workers):
    (alone,) = workers(1, compile_it)
    for found in workers(2, compile_it):
        torch.testing.assert_close(found, alone, rtol=0, atol=10 * ROUNDING)
