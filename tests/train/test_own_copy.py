"""The models at the end of a loop of one's own, where workers' parameters differ within a period, or always."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from train._own_served import own_served
from train.test_own_loop import call
from volary.errors import SettingError

ROUNDING = 1e-12
PERIOD, STEPS = 4, 6
OWN = "is this worker's own copy: other workers have others"


def targets() -> torch.Tensor:
    return torch.randn(40, 1, generator=torch.Generator().manual_seed(3)).double()


def bias() -> nn.Module:
    """A network of one value, whose gradient is its distance to the mean of the batch's targets."""
    model = nn.Linear(1, 1).double()
    nn.init.zeros_(model.weight).requires_grad_(False)
    nn.init.zeros_(model.bias)
    return model


def broken_off(worker: Any, momentum: float = 0.0) -> tuple[nn.Module, Any]:
    """A model that was trained for 6 steps of an epoch of 10."""
    model = bias()
    trained = [one for one in model.parameters() if one.requires_grad]
    model, rule = worker.distribute(model, torch.optim.SGD(trained, lr=0.1, momentum=momentum))
    for step, (inputs, wanted) in enumerate(worker.feed(zeros(), batch_size=4, shuffle=False), 1):
        rule.zero_grad()
        (0.5 * (model(inputs) - wanted).square()).mean().backward()
        rule.step()
        if step == STEPS:
            break
    return model, rule


def zeros() -> TensorDataset:
    return TensorDataset(torch.zeros(40, 1).double(), targets())


def by_hand(shares: list[slice], steps: int = STEPS) -> tuple[list[float], float]:
    """Each worker's value after so many steps, and their mean. shares: of a batch, by worker."""
    mean = 0.0
    own = [0.0 for _ in shares]
    for step in range(steps):
        batch = targets()[4 * step : 4 * step + 4]
        own = [value - 0.1 * (value - batch[share].mean().item()) for value, share in zip(own, shares, strict=True)]
        mean = sum(own) / len(own)
        if (step + 1) % PERIOD == 0:
            own = [mean for _ in shares]
    return own, mean


def warnings_of(recorder: Any) -> list[str]:
    return [one["data"]["text"] for one in recorder.events if one.get("event") == "warning"]


def end_within_a_period(rank: int, world_size: int, behind: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def loop(worker: Any) -> None:
        model, _ = broken_off(worker)
        found["own"] = model.state_dict()["bias"].item()
        found["again"] = model.state_dict()["bias"].item()
        found["measured"] = worker.evaluate(lambda _: model.bias, zeros(), batch_size=4)
        found["after it"] = model.bias.item()
        with pytest.raises(SettingError, match=r"2 steps after replicas were equal last; .* or after worker.barrier"):
            worker.save(model=model)
        worker.barrier()
        found["mean"] = model.state_dict()["bias"].item()
        worker.finish()

    exchange = {"name": "allreduce", "behind": behind}
    strategy = {"consistency": {"name": "local", "period": PERIOD}, "exchange": exchange}
    _, recorder = call(loop, rank, world_size, 0, strategy=strategy)
    return found | {"said": warnings_of(recorder)}


@pytest.mark.parametrize("behind", [False, True])
def test_a_loop_that_ends_within_a_period_is_told_and_a_barrier_makes_all_copies_their_mean(workers, behind):
    everyone = workers(2, end_within_a_period, behind)
    own, mean = by_hand([slice(rank, None, 2) for rank in range(2)])
    for rank, found in enumerate(everyone):
        assert found["own"] == found["again"] == found["after it"]
        assert found["mean"] == pytest.approx(everyone[0]["mean"], abs=0)
        if not behind:
            assert found["own"] == pytest.approx(own[rank], abs=ROUNDING)
            assert (found["measured"], found["mean"]) == (pytest.approx(mean), pytest.approx(mean, abs=ROUNDING))
    assert everyone[0]["own"] != everyone[1]["own"]
    (text,) = everyone[0]["said"]
    assert text.startswith(f"state_dict() was read, which {OWN}, 2 steps after replicas were equal last; accepted: wor")
    assert everyone[1]["said"] == []


def end_without_saving(rank: int, world_size: int) -> list[list[str]]:
    """Messages where nobody reads a state, where it is read of copies alone, and where nothing differs."""

    def leave(worker: Any) -> None:
        broken_off(worker)
        worker.finish()

    def leave_together(worker: Any) -> None:
        model, _ = broken_off(worker)
        for one in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            one.state_dict()
        worker.barrier()
        model.state_dict()
        worker.finish()

    local = {"consistency": {"name": "local", "period": PERIOD}}
    loops = [(leave, local), (leave_together, local), (leave, {})]
    return [
        warnings_of(call(one, rank, world_size, attempt, strategy=how)[1]) for attempt, (one, how) in enumerate(loops)
    ]


def test_a_loop_that_ends_within_a_period_is_told_once_where_nobody_has_read_its_state(workers):
    (first, *others), *_ = workers(2, end_without_saving)
    assert [text.partition(";")[0] for text in first] == [
        f"the loop has ended, and the model {OWN}, 2 steps after replicas were equal last"
    ]
    assert others == [[], []]


def read_under_gossip(rank: int, world_size: int) -> list[str]:
    def loop(worker: Any) -> None:
        model, _ = broken_off(worker)
        worker.evaluate(lambda _: model.state_dict()["bias"], zeros(), batch_size=4)
        worker.finish()

    silent = warnings_of(call(loop, rank, world_size, 0, strategy={"consistency": "gossip"})[1])
    told = call(
        lambda worker: broken_off(worker)[0].state_dict(), rank, world_size, 1, strategy={"consistency": "gossip"}
    )
    return silent + warnings_of(told[1])


def test_under_gossip_a_state_that_is_read_is_told_to_be_one_worker_s(workers):
    first, second = workers(2, read_under_gossip)
    accepted = "accepted: worker.save(model=model), on all workers, which writes the one model of all"
    assert first == [f"state_dict() was read, which {OWN}; {accepted}"]
    assert second == []


def end_over_servers(rank: int, world_size: int) -> Any:
    strategy = {"workers": world_size - 1, "consistency": {"name": "local", "period": PERIOD}}
    return own_served(rank, world_size, lambda worker: broken_off(worker)[0].state_dict()["bias"].item(), strategy)


def test_over_servers_what_was_learnt_in_the_last_period_counts_though_the_loop_ends_within_it(workers):
    first, second, _ = workers(3, end_over_servers)
    own, mean = by_hand([slice(0, 2), slice(2, 4)])
    assert [first.value, second.value] == pytest.approx(own, abs=ROUNDING)
    assert first.weights["bias"].item() == pytest.approx(mean, abs=ROUNDING)
    said = [one["data"]["text"] for one in first.worker_said if one.get("event") == "warning"]
    assert said == [
        f"state_dict() was read, which {OWN}, within a period of local; accepted: the run's checkpoint, which servers "
        "write at its end"
    ]
