"""`worker.weigh`: a loop whose loss is a mean over what counts of its batches equals one process on N workers."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from train._own_loops import CLASSES, FEATURES, network
from train._own_served import own_served
from train.test_own_loop import call
from volary.errors import BadInput
from volary.exchange.gradients import row_blocks

ROUNDING = 1e-10
TOLD = "the loss is a mean over a part of the batch"
PLAIN, MOMENTUM = {"lr": 0.2}, {"lr": 0.2, "momentum": 0.9}
TORCH = {"exchange": {"name": "allreduce", "route": "torch"}}
LOCAL = {"name": "local", "period": 1}


def sequences() -> TensorDataset:
    """Sequences of three positions each, of which few count; of every fourth sequence none does."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(23, 3, FEATURES, generator=generator).double()
    targets = torch.randint(CLASSES, (23, 3), generator=generator)
    targets[torch.rand(23, 3, generator=generator) < 0.5] = -100
    targets[::4] = -100
    return TensorDataset(inputs, targets)


def mean_of(kind: str, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss, whose gradient is no number where nothing counts."""
    if kind == "cross-entropy":
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    there = targets != -100
    return ((outputs - 1).square().sum(-1) * there).sum() / there.sum()


def loop(worker: Any, kind: str, rule: dict[str, Any], *, passes: int = 1, says: bool = True, **more: Any) -> Any:
    """Four epochs of batches of 4 sequences, the last one of 3."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), **rule), passes=passes, **more)
    means, number, data = [], 0, sequences()
    for _ in range(4):
        for inputs, targets in worker.feed(data, batch_size=4):
            if says:
                worker.weigh((targets != -100).sum())
            loss = mean_of(kind, model(inputs), targets)
            (loss / passes).backward()
            number += 1
            if number % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
    means.append(worker.mean(loss.detach()).item())
    return {"state": model.state_dict(), "means": means}


WAYS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "all together": ("masked", MOMENTUM, {}, {}),
    "as sums come": ("masked", MOMENTUM, {"early_update": True}, TORCH),
    "in passes": ("masked", MOMENTUM, {"passes": 2}, TORCH),
    "as factors": ("masked", MOMENTUM, {}, {"codec": "factors"}),
    "cross-entropy": ("cross-entropy", MOMENTUM, {}, {}),
    "by local steps": ("masked", PLAIN, {}, {"consistency": LOCAL}),
}
SERVED: dict[str, tuple[str, dict[str, Any], Any]] = {
    "bsp": ("masked", MOMENTUM, "bsp"),
    "local": ("masked", PLAIN, LOCAL),
}


def in_every_way(rank: int, world_size: int) -> dict[str, Any]:
    row_blocks.LARGE_BYTES = 0  # of this worker's process: all layers may travel as factors
    found = {}
    for attempt, (name, (kind, rule, how, strategy)) in enumerate(WAYS.items()):
        one = partial(loop, kind=kind, rule=rule, **how)
        value, recorder = call(one, rank, world_size, attempt, strategy=strategy if world_size > 1 else {})
        found[name] = value, [row.loss for row in recorder.rows], recorder.events
    return found


def test_workers_that_say_what_counts_equal_one_process(workers):
    (alone,) = workers(1, in_every_way)
    for found in workers(2, in_every_way):
        for name, (value, losses, said) in found.items():
            expected, expected_losses, _ = alone[name]
            for parameter, tensor in expected["state"].items():
                torch.testing.assert_close(
                    value["state"][parameter], tensor, rtol=0, atol=ROUNDING, msg=lambda text, name=name: name + text
                )
            assert value["means"] == pytest.approx(expected["means"]), "worker.mean counts alike"
            if name != "by local steps":
                assert losses == pytest.approx(expected_losses)
            assert not [one for one in said if one.get("event") == "warning" and TOLD in one["data"]["text"]]


def over_servers(rank: int, world_size: int) -> dict[str, Any]:
    return {
        name: own_served(
            rank, world_size, partial(loop, kind=kind, rule=rule), {"workers": 2, "consistency": how}, name
        )
        for name, (kind, rule, how) in SERVED.items()
    }


@pytest.mark.slow  # over all-reduce above
def test_over_servers_too(workers):
    (alone,) = workers(1, in_every_way)
    first, *_ = workers(3, over_servers)
    for name, known in (("bsp", "all together"), ("local", "by local steps")):
        expected, _, _ = alone[known]
        for parameter, tensor in expected["state"].items():
            torch.testing.assert_close(
                first[name].weights[parameter], tensor, rtol=0, atol=ROUNDING, msg=lambda text, name=name: name + text
            )
        assert first[name].value["means"] == pytest.approx(expected["means"])


def unsaid(rank: int, world_size: int) -> list[list[str]]:
    told = []
    for attempt, kind in enumerate(("cross-entropy", "masked")):
        _, recorder = call(partial(loop, kind=kind, rule=PLAIN, says=False), rank, world_size, attempt)
        told.append([one["data"]["text"] for one in recorder.events if one.get("event") == "warning"])
    return told


def test_a_loop_that_does_not_say_what_counts_is_told_what_to_write(workers):
    before = torch.autograd.backward
    for of_classes, of_a_mask in workers(2, unsaid):
        for (text,), how in ((of_classes, "NllLoss ignores "), (of_a_mask, "a sum divided by ")):
            assert text.startswith(f"{TOLD} ({how}")
            assert text.endswith(
                "accepted: worker.weigh(count) before backward(), with what this worker's loss divides by"
            )
    assert unsaid(0, 1) == [[], []], "alone nothing is weighted"
    assert torch.autograd.backward is before


class WithLoss(nn.Module):
    """A network that computes its loss itself if it is given targets."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        scores = self.inner(inputs)
        return {"logits": scores} if labels is None else {"loss": mean_of("cross-entropy", scores, labels)}


def inside(worker: Any, says: bool) -> Any:
    model = WithLoss()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), **PLAIN))
    for inputs, targets in worker.feed(sequences(), batch_size=4):
        if says:
            worker.weigh((targets != -100).sum())
        model(inputs, labels=targets)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"state": model.state_dict()}


def loss_inside(rank: int, world_size: int) -> list[tuple[Any, list[str]]]:
    found = []
    for attempt, says in enumerate((True, False)):
        value, recorder = call(partial(inside, says=says), rank, world_size, attempt)
        found.append(
            (value["state"], [one["data"]["text"] for one in recorder.events if one.get("event") == "warning"])
        )
    return found


def test_a_loss_that_a_network_computes_itself_is_told_alike(workers):
    (expected, _), _ = loss_inside(0, 1)
    for (state, nothing), (_, (text,)) in workers(2, loss_inside):
        assert nothing == []
        assert text.startswith(f"{TOLD} (NllLoss ignores ")
        for parameter, values in expected.items():
            torch.testing.assert_close(state[parameter], values, rtol=0, atol=ROUNDING)


def unsaid_over_servers(rank: int, world_size: int) -> Any:
    return own_served(rank, world_size, partial(loop, kind="masked", rule=PLAIN, says=False), {"workers": 1})


def test_over_servers_it_is_told_too(workers):
    found, _ = workers(2, unsaid_over_servers)
    texts = [one["data"]["text"] for one in found.worker_said if one.get("event") == "warning"]
    assert len([text for text in texts if text.startswith(TOLD)]) == 1


def of_nothing(worker: Any) -> Any:
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    begun = [one.detach().clone() for one in model.parameters()]
    for inputs, _ in worker.feed(sequences(), batch_size=4):
        worker.weigh(0)
        (model(inputs).sum() * 0 / 0.0).backward()
        optimizer.step()
        optimizer.zero_grad()
    return all(torch.equal(*pair) for pair in zip(begun, model.parameters(), strict=True))


def call_of_nothing(rank: int, world_size: int) -> Any:
    unchanged, recorder = call(of_nothing, rank, world_size, 0)
    return unchanged, [one["data"]["text"] for one in recorder.events if one.get("event") == "warning"]


def test_batches_of_which_nothing_counts_have_gradients_of_zero_and_it_is_said_once(workers):
    first, second = workers(2, call_of_nothing)
    assert first == (True, ["worker.weigh was given 0 by all workers: their gradients are zero"])
    assert second == (True, [])


def measuring(worker: Any) -> Any:
    model = worker.distribute(network())

    def judged(batch: Any) -> dict[str, Tensor]:
        inputs, targets = batch
        there = targets != -100
        worker.weigh(there.sum())
        right = (model(inputs).argmax(-1) == targets) & there
        return {"accuracy": right.sum() / there.sum(), "loss": mean_of("masked", model(inputs), targets)}

    return worker.evaluate(judged, sequences(), batch_size=4)


def call_measuring(rank: int, world_size: int) -> Any:
    return call(measuring, rank, world_size, 0)[0]


def test_an_evaluation_is_a_mean_over_what_its_function_says_counts(workers):
    model, (inputs, targets) = network(), sequences().tensors
    there = targets != -100
    accuracy = ((model(inputs).argmax(-1) == targets) & there).sum() / there.sum()
    for found in [*workers(3, call_measuring), call_measuring(0, 1)]:
        assert found["accuracy"] == pytest.approx(accuracy.item(), abs=1e-6)
        assert found["loss"] == pytest.approx(mean_of("masked", model(inputs), targets).item())


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (-1, "worker.weigh was given -1; accepted: a number from 0"),
        (math.nan, "worker.weigh was given nan; accepted: a number from 0"),
        ("many", "worker.weigh was given a str; accepted: a number from 0"),
        (torch.ones(2), "worker.weigh was given a Tensor; accepted: a number from 0"),
    ],
)
def test_what_counts_is_a_number(count, said):
    with pytest.raises(BadInput, match=f"^{said}$"):
        call(lambda worker: worker.weigh(count), 0, 1, 0)


def weighing_alone(rank: int, world_size: int) -> str:
    def odd(worker: Any) -> None:
        worker.weigh(1) if worker.rank else worker.sum(1)

    try:
        call(odd, rank, world_size, 0)
    except Exception as error:
        return str(error)
    return ""


def test_a_worker_that_makes_another_call_meanwhile_is_named(workers):
    for said in workers(2, weighing_alone):
        assert "rank 0 worker.sum of 1 value, rank 1 worker.weigh" in said
