"""Steps of several backward passes: whoever uses gradients sees those that all workers agree on, or a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from train._own_loops import CLASSES, network, points
from train._training import OVERLAPPED
from train.test_own_loop import ROUNDING, call
from volary.exchange.gradients import row_blocks

PASSES = 2
State = dict[str, Any]
Due = Callable[[int, int], bool]  # of a batch's number in its epoch, and in all: whether a step follows

DUE: dict[str, Due] = {
    "every second and the last": lambda own, _: own % 2 == 1 or own == 4,
    "every second of an epoch": lambda own, _: own % 2 == 1,
    "every second of all": lambda _, number: number % 2 == 1,
    "every third": lambda own, _: own % 3 == 2,
    "every batch": lambda own, _: True,
}


def batches(worker: Any, *, fed: bool = True, samples: int = 30) -> Iterator[tuple[int, int, Any]]:
    """Two epochs and a half of five batches: its number in the epoch, that in all, and the batch."""
    number = 0
    inputs, targets = points(samples).tensors
    for epoch in range(3):
        made: Any = worker.feed(points(samples), batch_size=6, shuffle=False)
        if not fed:  # batches of one's own: all workers' are as large
            share = slice(worker.rank, None, worker.world_size)
            made = [(x[share], y[share]) for x, y in zip(inputs.split(6), targets.split(6), strict=True)]
        for own, batch in enumerate(made):
            yield own, number, batch
            number += 1
            if epoch == 2 and own == 2:
                break


def norm_clipped(model: nn.Module, _: Any) -> Tensor:
    return nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def value_clipped(model: nn.Module, _: Any) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def changed_by_hand(model: nn.Module, _: Any) -> Tensor:
    with torch.no_grad():
        for one in model.parameters():
            assert one.grad is not None
            one.grad.data.clamp_(-0.02, 0.01)
            one.grad.mul_(2)
    return torch.stack([one.grad.sum() for one in model.parameters()]).sum()


def scaled(model: nn.Module, optimizer: Any) -> Tensor:
    """A scaler that unscales before the step, by a scale of 1."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    return nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def copied(model: nn.Module, _: Any) -> Tensor:
    flat = torch.cat([one.grad.flatten() for one in model.parameters()])
    for one, part in zip(model.parameters(), flat.split([one.numel() for one in model.parameters()]), strict=True):
        one.grad = (part / (1 + flat.norm())).view_as(one)
    return flat.norm()


LOOKS = [norm_clipped, value_clipped, changed_by_hand, scaled, copied]


def learn(worker: Any, due: Due, look: Any = norm_clipped, *, fed: bool = True, to_none: bool = True) -> State:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer = worker.distribute(model, optimizer, passes=PASSES)
    found = []
    for own, number, (inputs, targets) in batches(worker, fed=fed):
        (functional.cross_entropy(model(inputs), targets) / PASSES).backward()
        if due(own, number):
            found.append(look(model, optimizer))
            optimizer.step()
            optimizer.zero_grad(set_to_none=to_none)
    norms = [one for one in found if one is not None]
    return {**model.state_dict(), "norms": torch.stack(norms) if norms else torch.zeros(0)}


def several_models(worker: Any) -> State:
    """Each has its optimiser; the second is in the graph of the first's loss, and lets go of what that leaves there."""
    made, judge = network(), nn.Sequential(nn.Linear(CLASSES, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    of_made, of_judge = torch.optim.Adam(made.parameters(), 0.01), torch.optim.Adam(judge.parameters(), 0.02)
    worker.distribute(made, of_made, judge, of_judge, passes=PASSES)
    norms = []
    for own, _, (inputs, targets) in batches(worker):
        (-judge(made(inputs)).mean() / PASSES).backward()
        of_judge.zero_grad()  # what came by way of the other loss
        real = functional.one_hot(targets, CLASSES).double()
        ((judge(made(inputs).detach()) - judge(real)).square().mean() / PASSES).backward()
        if own % 3 == 2:
            norms += [norm_clipped(made, None), norm_clipped(judge, None)]
            of_made.step()
            of_judge.step()
            of_made.zero_grad()
    return {**made.state_dict(), **{f"judge.{name}": one for name, one in judge.state_dict().items()}}


def cleared(worker: Any) -> State:
    """A batch is left out after its backward: nothing of it counts."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2), passes=3)
    for own, number, (inputs, targets) in batches(worker):
        functional.cross_entropy(model(inputs), targets).backward()
        if number in (3, 6):
            optimizer.zero_grad(set_to_none=number == 3)
        if own % 2:
            norm_clipped(model, None)
            optimizer.step()
            optimizer.zero_grad()
    return dict(model.state_dict())


def logged(worker: Any) -> State:
    """Norms and hooks see gradients after each pass; some parameters are in no loss."""
    model = nn.Sequential(network(), nn.Linear(2, 2).double())
    model, optimizer = worker.distribute(model, torch.optim.SGD(model[0].parameters(), lr=0.2), passes=3)
    norms: list[Tensor] = []
    for own, _, (inputs, targets) in batches(worker):
        functional.cross_entropy(model[0](inputs), targets).backward()
        grads = [one.grad for one in model.parameters() if one.grad is not None]
        norms.append(nn.utils.get_total_norm(grads))
        if own % 2:
            optimizer.step()
            optimizer.zero_grad()
    return {**model.state_dict(), "norms": torch.stack(norms)}


def hooked(worker: Any) -> State:
    """Hooks of the user's, on what comes to a parameter in each pass and on what it has then."""
    model, seen = network(), []
    model[2].bias.register_hook(lambda gradient: gradient * 0.5)
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(lambda one: seen.append(bool(one.grad.isfinite().all())))
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2), passes=PASSES)
    for own, _, (inputs, targets) in batches(worker):
        functional.cross_entropy(model(inputs), targets).backward()
        if own == 1:
            optimizer.zero_grad()
        if own % 3 == 2:
            norm_clipped(model, None)
            optimizer.step()
            optimizer.zero_grad()
    assert seen == [True] * 4 * 13
    return dict(model.state_dict())


def by_hand(worker: Any) -> State:
    """No optimiser: parameters are changed by what their gradients are."""
    model = worker.distribute(network(), passes=PASSES)
    for own, _, (inputs, targets) in batches(worker):
        functional.cross_entropy(model(inputs), targets).backward()
        if own % 3 == 2:
            with torch.no_grad():
                for one in model.parameters():
                    one -= 0.1 * one.grad
            model.zero_grad()
    return dict(model.state_dict())


def sparse(worker: Any) -> State:
    model = nn.Embedding(CLASSES, 4, sparse=True).double()
    torch.manual_seed(1)
    nn.init.normal_(model.weight)
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2), passes=PASSES)
    for own, _, (_, targets) in batches(worker):
        model(targets).square().mean().backward()
        if own % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
    return dict(model.state_dict())


def passed_over(worker: Any) -> State:
    """More calls than were announced: none was."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2))
    for own, _, (inputs, targets) in batches(worker):
        functional.cross_entropy(model(inputs), targets, label_smoothing=0.1).backward()
        if own % 2:
            norm_clipped(model, None)
            optimizer.step()
            optimizer.zero_grad(set_to_none=own == 1)
    return dict(model.state_dict())


def summed(worker: Any) -> State:
    """A loss that is a sum over samples, with a step after every second batch and the last."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.02), passes=2, loss="sum")
    for own, _, (inputs, targets) in batches(worker):
        functional.cross_entropy(model(inputs), targets, reduction="sum").backward()
        if own % 2 or own == 4:
            norm_clipped(model, None)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return dict(model.state_dict())


LOOPS: dict[str, Callable[[Any], State]] = {
    **{f"clipped, {name}": lambda worker, due=due: learn(worker, due) for name, due in DUE.items()},
    **{f"{one.__name__}": lambda worker, one=one: learn(worker, DUE["every third"], one) for one in LOOKS},
    "kept as zeros": lambda worker: learn(worker, DUE["every third"], to_none=False),
    "not fed": lambda worker: learn(worker, DUE["every third"], fed=False),
    **{one.__name__: one for one in (several_models, cleared, logged, hooked, by_hand, sparse, passed_over, summed)},
}


def each(rank: int, world_size: int, strategy: dict[str, Any]) -> dict[str, State]:
    loops = {name: loop for name, loop in LOOPS.items() if name != "hooked" or "codec" not in strategy}
    row_blocks.LARGE_BYTES = 0  # of this worker's process: all layers may travel as factors, or be written in place
    return {
        name: call(loop, rank, world_size, attempt, strategy=strategy)[0]
        for attempt, (name, loop) in enumerate(loops.items())
    }


@pytest.mark.parametrize(
    ("world_size", "strategy"),
    [
        pytest.param(2, {}, marks=pytest.mark.slow),
        (2, {"codec": "factors"}),
        pytest.param(3, OVERLAPPED, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_one_process_whenever_they_are_used(workers, world_size, strategy):
    (alone,) = workers(1, each, {})
    for rank, found in enumerate(workers(world_size, each, strategy)):
        for name in found:
            for key, value in alone[name].items():
                torch.testing.assert_close(
                    found[name][key],
                    value,
                    rtol=0,
                    atol=10 * ROUNDING,
                    msg=lambda text, at=f"{name}: {key} on rank {rank}": f"{at}: {text}",
                )


def refused(rank: int, world_size: int) -> list[str]:
    said: list[str] = []

    def tries(loop: Callable[[Any], Any], **more: Any) -> None:
        try:
            call(loop, rank, world_size, len(said), strategy=OVERLAPPED, **more)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    def clips_early(worker: Any) -> None:
        model = network()
        worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), passes=2)
        model(points(6).tensors[0]).square().mean().backward()
        norm_clipped(model, None)

    def alone(worker: Any) -> None:
        model = worker.distribute(network(), passes=3)
        for _, _, (inputs, targets) in batches(worker):
            functional.cross_entropy(model(inputs), targets).backward()
            if worker.is_first:
                norm_clipped(model, None)

    def summed_again(worker: Any) -> None:
        model = network()
        worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), loss="sum")
        for _, _, (inputs, targets) in batches(worker):
            functional.cross_entropy(model(inputs), targets, reduction="sum").backward()

    tries(clips_early, early_update=True)
    tries(alone)
    tries(summed_again)
    return said


def test_what_workers_cannot_see_together_is_refused_in_one_sentence(workers):
    for said in workers(2, refused):
        assert [one.partition("; accepted")[0] for one in said] == [
            "SettingError: a gradient was used between backward() and optimizer.step(), and with early_update it is "
            "still on its way",
            "RanksDiffer: workers are not at the same place of their loops: rank 0 is in step 1 with batch 1 of "
            "worker.feed, rank 1 is in step 1 with batch 3 of worker.feed",
            "SettingError: backward() was called again before optimizer.step(), and gradients of the calls before are "
            "summed over all workers already",
        ]
