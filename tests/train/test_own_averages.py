"""`worker.average` in a loop of one's own: torch's average, equal on all workers, lent for a while, and resumed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from _workers import alone, joined
from train._own_loops import network, points
from train._own_workers import worker_in
from train.test_keeping import drafts
from train.test_own_loop import ROUNDING, call
from volary.errors import BadInput, SettingError
from volary.session.script import Script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder

DECAY = 0.8
LOCAL = {"consistency": {"name": "local", "period": 2}}
WAYS: dict[str, tuple[dict[str, Any], bool, int]] = {  # settings, early updates, passes of a step
    "bsp": ({}, False, 1),
    "early updates": ({}, True, 1),
    "two passes": ({}, False, 2),
    "sharded": ({"partition": {"name": "sharded", "level": 2}}, True, 1),
    "local": (LOCAL, False, 1),
}


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.clone() for name, one in state.items()}


def trained(worker: Worker, passes: int) -> list[dict[str, Tensor]]:
    """The average and the weights after 2 epochs of 6 batches; the average is evaluated on the way."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.05), passes=passes)
    average = worker.average(model, decay=DECAY)
    for _ in range(2):
        for number, (inputs, targets) in enumerate(worker.feed(points(24), batch_size=4, shuffle=False), 1):
            (cross_entropy(model(inputs), targets) / passes).backward()
            if number % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
        with average.applied():
            worker.evaluate(lambda batch: cross_entropy(model(batch[0]), batch[1]), points(5), batch_size=5)
    return [copied(average.state_dict()), copied(model.state_dict())]


def by_torch(passes: int) -> list[dict[str, Tensor]]:
    """Torch's own average beside a plain loop, and the weights."""
    model, data = network(), points(24)
    beside = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for number, at in enumerate([*range(0, 24, 4)] * 2, 1):
        inputs, targets = data[at : at + 4]
        (cross_entropy(model(inputs), targets) / passes).backward()
        if number % passes == 0:
            optimizer.step()
            optimizer.zero_grad()
            beside.update_parameters(model)
    return [dict(beside.module.state_dict()), dict(model.state_dict())]


@pytest.mark.parametrize("passes", [1, 2])
def test_the_average_is_torch_s_bit_for_bit(passes):
    found, _ = call(lambda worker: trained(worker, passes), 0, 1, 0)
    for some, others in zip(found, by_torch(passes), strict=True):
        assert some.keys() == others.keys()
        assert all(torch.equal(some[name], others[name]) for name in others)
    assert not any(torch.equal(found[0][name], found[1][name]) for name in found[0])


def in_every_way(rank: int, size: int) -> dict[str, list[dict[str, Tensor]]]:
    found = {}
    for attempt, (name, (strategy, early, passes)) in enumerate(WAYS.items()):
        learn = partial(trained, passes=passes)
        found[name], _ = call(learn, rank, size, attempt, strategy=strategy, early_update=early)
    return found


def test_all_workers_have_one_worker_s_average_and_evaluating_it_changes_nothing(workers):
    first, second = workers(2, in_every_way)
    for name, (_, _, passes) in WAYS.items():
        assert all(torch.equal(first[name][0][key], second[name][0][key]) for key in first[name][0]), name
        if name != "local":
            torch.testing.assert_close(first[name], by_torch(passes), rtol=0, atol=ROUNDING)


def local_means(worker: Worker) -> tuple[Tensor, Tensor]:
    """The average, and that of the weights after each mean: every second step, an epoch's end, a barrier."""
    model, optimizer = worker.distribute(model := network(), torch.optim.SGD(model.parameters(), lr=0.2))
    average, by_hand, steps = worker.average(model, decay=DECAY), None, 0
    for _ in range(2):
        for number, (inputs, targets) in enumerate(worker.feed(points(20), batch_size=4, shuffle=False), 1):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
            if steps == 6:
                worker.barrier()
            if number in (2, 4, 5) or steps == 6:
                now = model[0].weight.detach().clone()
                by_hand = now if by_hand is None else by_hand.lerp(now, 1 - DECAY)
            if steps == 6:
                break
    return average.state_dict()["0.weight"], by_hand


def asking(worker: Worker) -> str:
    """The message about an average that cannot be kept."""
    model = network()
    worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(SettingError) as raised:
        worker.average(model)
    return str(raised.value)


def averages_of_means(rank: int, size: int) -> Any:
    means, _ = call(local_means, rank, size, 0, strategy=LOCAL)
    return *means, call(asking, rank, size, 1, strategy={"consistency": "gossip"})[0]


def test_with_local_steps_the_means_of_all_workers_enter_and_with_gossip_there_are_none(workers):
    for average, by_hand, said in workers(2, averages_of_means):
        torch.testing.assert_close(average, by_hand, rtol=0, atol=ROUNDING)
        assert said.startswith("worker.average: workers' parameters differ at all times")


class Killed(Exception):
    """Stands for the end of the process."""


def attempt(group: Any, folder: Path, strategy: dict[str, Any], early: bool, die: int = -1) -> dict[str, Tensor]:
    """Two epochs of six steps, saved after each epoch: the average and the weights; what it began with if it dies."""
    script = Script(program="mine.py", strategy={"workers": group.size, **strategy})
    recorder, pulse = Recorder(group.rank), SimpleNamespace(asked_to_end=False)
    worker = worker_in(script, group, recorder, pulse, drafts(folder, recorder))
    model, steps = network(), 0
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.05), early_update=early)
    average = worker.average(model, decay=DECAY)
    kept = {"model": model, "optimizer": optimizer, "average": average}
    try:
        worker.restore(**kept)
        for _ in worker.epochs(2):
            for inputs, targets in worker.feed(points(24), batch_size=4, shuffle=False):
                optimizer.zero_grad()
                cross_entropy(model(inputs), targets).backward()
                optimizer.step()
                steps += 1
                if steps == die:
                    raise Killed
            with average.applied():
                pass
            worker.save(**kept)
        return copied({**model.state_dict(), **{f"average.{key}": one for key, one in average.state_dict().items()}})
    except Killed:
        return {}
    finally:
        worker.close()


def resumed(rank: int, size: int) -> list[tuple[dict[str, Tensor], dict[str, Tensor]]]:
    found = []
    for number, (strategy, early) in enumerate([({}, True), (LOCAL, False)]):
        groups = [joined(3 * number + attempt_id) for attempt_id in range(3)]
        whole = attempt(groups[0], Path(f"../whole-{number}"), strategy, early)
        attempt(groups[1], Path(f"../cut-{number}"), strategy, early, die=9)
        found.append((whole, attempt(groups[2], Path(f"../cut-{number}"), strategy, early)))
    return found


def test_a_resumed_loop_ends_with_the_average_of_an_uninterrupted_one_bit_for_bit(workers):
    for found in workers(2, resumed):
        for whole, again in found:
            assert len(whole) == 8
            assert whole.keys() == again.keys()
            assert all(torch.equal(whole[key], again[key]) for key in whole)


def begun(strategy: dict[str, Any] | None = None) -> tuple[Worker, nn.Module, torch.optim.Optimizer]:
    model = network()
    script = Script(program="mine.py", strategy=strategy or {})
    worker = worker_in(script, alone(), Recorder(0), SimpleNamespace(asked_to_end=False))
    return worker, *worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_lent_average_is_neither_trained_nor_saved_and_the_weights_come_back_after_an_error():
    worker, model, optimizer = begun()
    average = worker.average(model)
    worker.restore(model=model, average=average)
    for scale in (1.0, 2.0):
        model[0].weight.grad = torch.full_like(model[0].weight, scale)
        optimizer.step()
    raw = copied(model.state_dict())
    with (
        pytest.raises(SettingError, match=r"optimizer\.step\(\) was called within average\.applied\(\)"),
        average.applied(),
    ):
        optimizer.step()
    with pytest.raises(SettingError, match=r"worker\.save was called within average\.applied\(\)"), average.applied():
        worker.save(model=model, average=average)
    with (
        pytest.raises(SettingError, match=r"called within itself; accepted: once"),
        average.applied(),
        average.applied(),
    ):
        pass
    assert all(torch.equal(raw[key], one) for key, one in model.state_dict().items())
    with average.applied():
        torch.testing.assert_close(model[0].weight - raw["0.weight"], torch.full_like(model[0].weight, 0.999 * 0.2))
    worker.close()


def test_a_head_that_is_replaced_enters_anew():
    worker, model, optimizer = begun()
    average = worker.average(model, decay=0.5)
    optimizer.step()
    model[2] = nn.Linear(8, 2).double()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert torch.equal(average.state_dict()["2.weight"], model[2].weight)
    assert average.state_dict()["0.weight"].shape == (8, 5)
    with pytest.raises(
        BadInput, match=r"has 2\.weight of shape \(3, 8\), and the model has of shape \(2, 8\); accepted"
    ):
        average.load_state_dict({"2.weight": torch.zeros(3, 8)})
    worker.close()


def test_what_has_no_average_is_refused_in_a_sentence():
    worker, model, _ = begun()
    with pytest.raises(
        BadInput, match=r"worker\.average was given a model that is not distributed; accepted: one that"
    ):
        worker.average(network())
    with pytest.raises(SettingError, match=r"decay is 1\.5; accepted: 0 to below 1"):
        worker.average(model, decay=1.5)
    worker.close()
    behind = {"exchange": {"name": "allreduce", "behind": True, "route": "torch"}}
    said, _ = call(asking, 0, 1, 0, strategy=behind, early_update=True)
    assert said.startswith("worker.average: exchange.behind is true, and updates are under way at all times")
