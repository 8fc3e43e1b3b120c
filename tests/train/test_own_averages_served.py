"""`worker.average` over servers, which keep the average: one device's, lent to all workers, saved and resumed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from train._own_loops import network, points
from train._own_served import own_served
from train.test_own_averages import DECAY, by_torch, copied
from train.test_own_loop import ROUNDING
from train.test_own_served import loop_of
from volary.errors import BadInput, SettingError
from volary.session.script import Script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder


def trained(worker: Any, leave: int = -1, early: int = 0) -> dict[str, Any]:
    """Averages and weights after 2 epochs of 6 batches, saved and evaluated after each; ends after epoch `leave`.

    early: the step after which the average is looked at, too.
    """
    model, steps, losses = network(), 0, []
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.05))
    average = worker.average(model, decay=DECAY)
    kept = {"model": model, "optimizer": optimizer, "average": average}
    worker.restore(**kept)
    found: dict[str, Any] = {"early": {}}
    feed = worker.feed(points(24), batch_size=4, shuffle=False)
    for epoch in worker.epochs(2):
        for inputs, targets in feed:
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
            if steps == early:
                with average.applied():
                    found["early"] = copied(model.state_dict())
        with average.applied():
            losses.append(worker.evaluate(partial(_loss, model), points(5), batch_size=5))
        worker.save(**kept)
        if epoch == leave:
            return found
    return found | {"average": copied(average.state_dict()), "losses": losses}


def _loss(model: nn.Module, batch: Any) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def strategy_of(world_size: int, workers: int = 2) -> dict[str, Any]:
    return {"workers": workers, "exchange": {"name": "server", "servers": world_size - workers}}


def whole_and_resumed(rank: int, world_size: int) -> Any:
    strategy = strategy_of(world_size)
    whole = own_served(rank, world_size, partial(trained, early=3), strategy, "whole")
    own_served(rank, world_size, partial(trained, leave=0), strategy, "cut")
    resumed = own_served(rank, world_size, trained, strategy, "cut")
    return None if whole is None or resumed is None else (whole.value, resumed.value, whole.weights)


def test_servers_keep_one_device_s_average_of_a_loop_of_ones_own_and_resume_it_bit_for_bit(workers):
    averaged, raw = by_torch(1)
    model = network()
    model.load_state_dict(averaged)
    with torch.no_grad():
        loss = float(_loss(model, points(5).tensors))
    first, second, _ = workers(3, whole_and_resumed)
    for whole, resumed, weights in (first, second):
        torch.testing.assert_close(whole["average"], averaged, rtol=0, atol=ROUNDING)
        assert whole["losses"][-1] == pytest.approx(loss, abs=ROUNDING)
        assert whole["average"].keys() == averaged.keys() == resumed["average"].keys()
        assert all(torch.equal(one, resumed["average"][name]) for name, one in whole["average"].items())
        assert whole["losses"][1:] == resumed["losses"]
        torch.testing.assert_close(weights or raw, raw, rtol=0, atol=ROUNDING)  # which rank 0 alone has read
    assert all(torch.equal(one, second[0]["early"][name]) for name, one in first[0]["early"].items())
    assert first[0]["early"].keys() == raw.keys()


def locally(rank: int, world_size: int) -> Any:
    strategy = strategy_of(world_size) | {"consistency": {"name": "local", "period": 2}}
    whole = own_served(rank, world_size, trained, strategy, "whole")
    own_served(rank, world_size, partial(trained, leave=0), strategy, "cut")
    resumed = own_served(rank, world_size, trained, strategy, "cut")
    return None if whole is None or resumed is None else (whole.value, resumed.value)


@pytest.mark.slow  # with steps of all workers above
def test_with_local_steps_means_enter_and_a_resumed_run_s_average_goes_on_bit_for_bit(workers):
    (first, again), (second, _), _ = workers(3, locally)
    for name, one in first["average"].items():
        assert torch.equal(one, again["average"][name]) and torch.equal(one, second["average"][name])
    assert first["losses"][1:] == again["losses"]


def of_one_of_two(worker: Any) -> Any:
    """The average of one of two models, whose optimisers take turns; what both models have beside it."""
    first, second = network(), network()
    models = worker.distribute([first, second], [torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second)])
    average, by_hand = worker.average(second, decay=DECAY), None
    for inputs, targets in worker.feed(points(12), batch_size=4, shuffle=False):
        for model, optimizer in zip(*models, strict=True):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        first(inputs), second(inputs)  # a forward needs what servers have by now
        now = copied(second.state_dict())
        by_hand = now if by_hand is None else {key: one.lerp(now[key], 1 - DECAY) for key, one in by_hand.items()}
    beside = copied(first.state_dict())
    with average.applied():
        assert all(torch.equal(one, beside[name]) for name, one in first.state_dict().items())
        lent = copied(second.state_dict())
    assert all(torch.equal(one, now[name]) for name, one in second.state_dict().items()), "its own come back"
    return lent, by_hand


def of_one(rank: int, world_size: int) -> Any:
    return own_served(rank, world_size, of_one_of_two, strategy_of(world_size))


def test_the_average_of_one_of_several_models_is_lent_to_that_one(workers):
    for found in workers(3, of_one)[:2]:
        lent, by_hand = found.value
        torch.testing.assert_close(lent, by_hand, rtol=0, atol=ROUNDING)


def within(worker: Any) -> list[str]:
    """Messages of calls that an average does not go with."""
    model, said = network(), []
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    average = worker.average(model)
    worker.restore(model=model, average=average)
    feed = worker.feed(points(12), batch_size=4)

    def refused(call: Any) -> None:
        with pytest.raises((SettingError, BadInput)) as raised:
            call()
        said.append(str(raised.value))

    refused(average.state_dict)
    for _ in worker.epochs(1):
        for inputs, targets in feed:
            loss = cross_entropy(model(inputs), targets)
            if len(said) == 1:
                refused(average.state_dict)
                loss.backward()
                optimizer.step()
                refused(lambda: worker.average(model))
                other = cross_entropy(model(inputs), targets)
                with average.applied():
                    for call in (
                        other.backward,
                        optimizer.step,
                        average.state_dict,
                        lambda: worker.save(model=model, average=average),
                        lambda: next(iter(feed)),
                    ):
                        refused(call)
                refused(lambda: average.load_state_dict({}))
                continue
            loss.backward()
            optimizer.step()
    return said


def refusing(rank: int, world_size: int) -> Any:
    return own_served(rank, world_size, within, strategy_of(world_size, workers=1))


def test_calls_within_an_average_or_before_there_is_one_are_refused(workers):
    said = workers(2, refusing)[0].value
    begin = "within average.applied(), where the model has its average in place of the trained weights; accepted: after"
    assert said[0].startswith("a step was taken before the first batch")
    assert said[1].startswith("average.applied() was called within what workers push at once; accepted: after")
    assert said[2] == "worker.average was called after the first batch; accepted with exchange=server: before"
    dids = ["backward() was called", "optimizer.step() was called", "average.applied() was called"]
    for one, did in zip(said[3:], [*dids, "worker.save was called", "a batch was taken"], strict=False):
        assert one.startswith(f"{did} {begin}"), one
    assert said[8].startswith(
        "average.load_state_dict: servers keep the average; accepted with exchange=server: worker"
    )


def test_an_average_over_servers_has_one_decay():
    script = Script(function="a.py:loop", strategy={"workers": 1, "exchange": "server"})
    loop: Any = loop_of(script)
    worker = Worker(loop, script, Recorder(0), torch.device("cpu"), 0)
    models = [network(), network()]
    worker.distribute(models, torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.1))
    worker.average(models[0], decay=0.9)
    worker.average(models[1], decay=0.9)
    with pytest.raises(BadInput, match=r"decay is 0\.8, and was 0\.9 before, .* accepted with exchange=server: the sa"):
        worker.average(models[1], decay=0.8)
    worker.close()
