"""Steps of a loop of a user's own over servers, of several backward passes, models and optimisers: as one worker's."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from train._own_loops import FEATURES, network, plain, points
from train._own_served import BATCH, own_served
from train.test_own_served import ROUNDING, by_one, loop_of
from volary.errors import SettingError, VolaryError
from volary.session.script import Script
from volary.train.own.worker import Worker
from volary.train.recording.recorder import Recorder


def leftover(worker: Any, samples: int = 25, passes: int = 3) -> dict[str, Any]:
    """Steps of three batches, and after an epoch one of what is left: of its last batch, which one worker has."""
    model = network()
    model, optimizer = worker.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), passes=passes
    )
    feed = worker.feed(points(samples), batch_size=BATCH)
    for _ in range(3):
        left = 0
        for inputs, targets in feed:
            (nn.functional.cross_entropy(model(inputs), targets) / passes).backward()
            left += 1
            if left == passes:
                optimizer.step()
                optimizer.zero_grad()
                left = 0
        if left:
            optimizer.step()
            optimizer.zero_grad()
    return {"state": model.state_dict()}


def last_of_some(worker: Any) -> dict[str, Any]:
    """The batch that ends a step is one that a worker has nothing of: what it has of the batch before leaves, too."""
    return leftover(worker, samples=5, passes=2)


def two_losses(worker: Any) -> dict[str, Any]:
    """Two backward passes of each batch, the second of which reaches a part of the model alone."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.02), passes=2)
    feed = worker.feed(points(), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            model(inputs.detach())[:, 0].mean().backward()
            optimizer.step()
    return {"state": model.state_dict()}


def summed(worker: Any, passes: int = 1) -> dict[str, Any]:
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.02), loss="sum", passes=passes)
    feed = worker.feed(points(25), batch_size=BATCH)
    losses, calls = [], 0
    for _ in range(3):
        for inputs, targets in feed:
            loss = nn.functional.cross_entropy(model(inputs), targets, reduction="sum")
            loss.backward()
            losses.append(worker.sum(loss.detach()))
            calls += 1
            if calls % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
    return {"state": model.state_dict(), "losses": torch.stack(losses)}


def two_models(worker: Any) -> dict[str, Any]:
    """An encoder and a decoder, each with its optimiser, whose settings and schedules differ."""
    torch.manual_seed(3)
    encoder, decoder = nn.Linear(FEATURES, 3).double(), nn.Linear(3, FEATURES).double()
    of_encoder = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    of_decoder = torch.optim.SGD(decoder.parameters(), lr=0.05, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(of_decoder, 4, 0.5)
    encoder, of_encoder = worker.distribute(encoder, of_encoder)
    decoder, of_decoder = worker.distribute(decoder, of_decoder)
    feed = worker.feed(points(25), batch_size=BATCH)
    for _ in range(3):
        for inputs, _ in feed:
            of_encoder.zero_grad()
            of_decoder.zero_grad()
            nn.functional.mse_loss(decoder(encoder(inputs)), inputs).backward()
            of_encoder.step()
            of_decoder.step()
            schedule.step()
    return {"state": {**encoder.state_dict(prefix="0."), **decoder.state_dict(prefix="1.")}}


def two_types(worker: Any, second: Any = torch.optim.Adam) -> dict[str, Any]:
    """Layers of one model in turn with Adagrad, whose state is there from the first, and with `second`."""
    model = network()
    first = torch.optim.Adagrad([model[0].weight, model[2].bias], lr=0.1)
    other = second([{"params": [model[0].bias]}, {"params": [model[2].weight], "lr": 0.02}], lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(other, 4, 0.5)
    model, *_ = worker.distribute(model, first, other)
    feed = worker.feed(points(), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            model.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            first.step()
            other.step()
            schedule.step()
    return {"state": model.state_dict()}


def closing(worker: Any) -> dict[str, Any]:
    """Optimisers that call backward themselves."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    losses = []
    feed = worker.feed(points(24), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:

            def closure(inputs: Any = inputs, targets: Any = targets) -> Any:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                return loss

            losses.append(worker.mean(optimizer.step(closure).detach()))
    return {"state": model.state_dict(), "losses": torch.stack(losses)}


def weighed(worker: Any) -> dict[str, Any]:
    """A loop where the first class of each batch alone counts, more on one worker than on another; of some, nothing."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), passes=2)
    calls, losses = 0, []
    feed = worker.feed(points(26), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            counts = targets == 0
            worker.weigh(counts.sum())
            loss = nn.functional.cross_entropy(model(inputs), targets, reduction="none")[counts].sum() / counts.sum()
            loss.backward()
            losses.append(worker.mean(loss.detach().nan_to_num()))
            calls += 1
            if calls % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
    return {"state": model.state_dict(), "losses": torch.stack(losses)}


def gan(worker: Any, every: int = 1, *, apart: bool = True, detached: bool = True, clips: bool = False) -> Any:
    """A judge learns from a batch, then what makes up samples, by the updated judge, in every batch or some of them."""
    torch.manual_seed(3)
    maker = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, FEATURES)).double()
    judge = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 1)).double()
    of_maker = torch.optim.Adam(maker.parameters(), lr=0.02)
    of_judge = torch.optim.SGD(judge.parameters(), lr=0.1, momentum=0.9)
    if apart:
        maker, of_maker = worker.distribute(maker, of_maker)
        judge, of_judge = worker.distribute(judge, of_judge)
    else:
        worker.distribute(nn.ModuleList([maker, judge]), of_maker, of_judge)
    score, norms = nn.functional.binary_cross_entropy_with_logits, []
    feed, number = worker.feed(points(26), batch_size=BATCH), 0
    for _ in range(3):
        for inputs, _ in feed:
            number += 1
            made = maker(inputs[:, :2])
            of_judge.zero_grad()
            real, fake = judge(inputs), judge(made.detach() if detached else made)
            (score(real, torch.ones_like(real)) + score(fake, torch.zeros_like(fake))).backward()
            if clips:
                norms.append(worker.clip_grad_norm_(judge, 0.2))
            of_judge.step()
            if number % every == 0:
                of_maker.zero_grad()
                fake = judge(maker(inputs[:, :2]))
                score(fake, torch.ones_like(fake)).backward()
                if clips:
                    norms.append(worker.clip_grad_norm_(maker.parameters(), 0.1))
                of_maker.step()
    found = {"state": {**maker.state_dict(prefix="0."), **judge.state_dict(prefix="1.")}}
    return found | ({"norms": torch.stack(norms)} if norms else {})


def inner(worker: Any, times: int = 3) -> dict[str, Any]:
    """Several steps with each batch, of one optimiser; the last batch is one worker's."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    losses, feed = [], worker.feed(points(25), batch_size=BATCH)
    for _ in range(2):
        for inputs, targets in feed:
            for _ in range(times):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
            losses.append(worker.mean(loss.detach()))
    return {"state": model.state_dict(), "losses": torch.stack(losses)}


def kept_aside(worker: Any) -> dict[str, Any]:
    """Two optimisers of a model, of which one steps with every second batch, by the gradients of both."""
    model = network()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    second = torch.optim.Adam(model[2].parameters(), lr=0.02)
    worker.distribute(model, first, second)
    number, feed = 0, worker.feed(points(24), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            number += 1
            nn.functional.cross_entropy(model(inputs), targets).backward()
            first.step()
            first.zero_grad()
            model(inputs)  # which is looked at
            if number % 2 == 0:
                second.step()
                second.zero_grad()
    return {"state": model.state_dict()}


def early(worker: Any) -> dict[str, Any]:
    """Over servers values come as they are needed whatever the loop says."""
    model = network()
    made = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer = worker.distribute(model, made, early_update=True)
    feed = worker.feed(points(), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return {"state": model.state_dict()}


def clipped(worker: Any, passes: int = 1, kind: float = 2.0) -> dict[str, Any]:
    """Gradients that are clipped by their norm, in most steps; the last batch of an epoch is one worker's."""
    model = network()
    model, optimizer = worker.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), passes=passes
    )
    norms, calls, feed = [], 0, worker.feed(points(25), batch_size=BATCH)
    for _ in range(3):
        for inputs, targets in feed:
            (nn.functional.cross_entropy(model(inputs), targets) / passes).backward()
            calls += 1
            if calls % passes == 0:
                most = float("inf") if len(norms) == 4 else 0.2
                norms.append(worker.clip_grad_norm_(model, most, kind))
                optimizer.step()
                optimizer.zero_grad()
    return {"state": model.state_dict(), "norms": torch.stack(norms)}


LOOPS = {
    "passes over batches, across epochs": partial(plain, passes=4),
    "passes over batches, and the rest of an epoch": leftover,
    "a step that ends with a batch of some": last_of_some,
    "passes of a batch": two_losses,
    "a sum": summed,
    "sums that are added up": partial(summed, passes=2),
    "two models and optimisers": two_models,
    "optimisers of two types": two_types,
    "optimisers of two types, of which one wants whole parameters": partial(two_types, second=torch.optim.Adafactor),
    "a closure": closing,
    "passes over batches of which little counts": weighed,
    "a GAN": gan,
    "a GAN whose maker steps with every third batch, in one module": partial(gan, every=3, apart=False),
    "a GAN that is clipped, whose judge reaches its maker": partial(gan, clips=True, detached=False),
    "several steps with each batch": inner,
    "gradients that are kept for a later batch": kept_aside,
    "early updates": early,
    "clipped": clipped,
    "clipped in passes": partial(clipped, passes=3),
    "clipped by the largest": partial(clipped, kind=float("inf")),
}


def all_of(rank: int, world_size: int, names: list[str], strategy: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for number, name in enumerate(names):
        ended = own_served(rank, world_size, LOOPS[name], strategy, f"run-{number}")
        if ended is not None:
            found[name] = ended.value, ended.weights
    return found


@pytest.mark.parametrize("servers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_over_servers_are_those_of_one_worker(workers, servers):
    strategy = {"workers": 2, "exchange": {"name": "server", "servers": servers}}
    first, second, *_ = workers(2 + servers, all_of, list(LOOPS), strategy)
    for name, loop in LOOPS.items():
        expected = by_one(loop)
        for (value, _), weights in [(first[name], first[name][1]), (second[name], first[name][1])]:
            for key, values in expected["state"].items():
                for found in (value["state"][key], weights[key]):
                    torch.testing.assert_close(
                        found, values, rtol=0, atol=ROUNDING, msg=lambda text, at=f"{name}, {key}": f"{at}: {text}"
                    )
        for key in expected.keys() & {"losses", "norms"}:
            torch.testing.assert_close(first[name][0][key], expected[key], rtol=0, atol=ROUNDING)


def kept(worker: Any, leave: int = -1) -> dict[str, Any]:
    """Two models in steps of two batches; saves after each step, and ends with the save of step `leave`."""
    torch.manual_seed(3)
    encoder, decoder = nn.Linear(FEATURES, 3), nn.Sequential(nn.Dropout(0.2), nn.Linear(3, FEATURES))
    parameters = [*encoder.parameters(), *decoder.parameters()]
    encoder, decoder, optimizer = worker.distribute(encoder, decoder, torch.optim.Adam(parameters, lr=0.01), passes=2)
    named = {"encoder": encoder, "decoder": decoder, "optimizer": optimizer}
    steps, batches = worker.restore(**named, steps=0)["steps"], 0
    feed = worker.feed(points(24), batch_size=BATCH)
    for _ in worker.epochs(3):
        for inputs, _ in feed:
            nn.functional.mse_loss(decoder(encoder(inputs.float())), inputs.float()).backward()
            batches += 1
            if batches % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                worker.save(**named, steps=steps)
            if steps == leave:
                return {}
    return {**encoder.state_dict(), **decoder.state_dict()}


def kept_gan(worker: Any, leave: int = -1) -> dict[str, Any]:
    """A GAN that saves after both turns of each batch, and ends with the save of batch `leave`."""
    torch.manual_seed(3)
    maker, judge = nn.Linear(2, FEATURES), nn.Sequential(nn.Linear(FEATURES, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.SGD(judge.parameters(), 0.1, momentum=0.9)
    worker.distribute(maker, of_maker, judge, of_judge)
    named = {"maker": maker, "judge": judge, "of_maker": of_maker, "of_judge": of_judge}
    batches = worker.restore(**named, batches=0)["batches"]
    feed = worker.feed(points(24), batch_size=BATCH)
    for _ in worker.epochs(2):
        for inputs, _ in feed:
            of_judge.zero_grad()
            (judge(maker(inputs[:, :2].float()).detach()).mean() - judge(inputs.float()).mean()).backward()
            of_judge.step()
            of_maker.zero_grad()
            (-judge(maker(inputs[:, :2].float())).mean()).backward()
            of_maker.step()
            batches += 1
            worker.save(**named, batches=batches)
            if batches == leave:
                return {}
    return {**maker.state_dict(prefix="maker."), **judge.state_dict(prefix="judge.")}


SAVED = {"passes": kept, "turns": kept_gan}


def in_two_lives(rank: int, world_size: int, how: str) -> list[Any]:
    found, strategy, saved = [], {"workers": 2, "exchange": {"name": "server", "servers": 1}}, SAVED[how]
    for name, loop in (("whole", saved), ("cut", partial(saved, leave=4)), ("cut", saved)):
        ended = own_served(rank, world_size, loop, strategy, name)
        found.append((ended.value, ended.weights) if ended is not None else ({}, {}))
    return found


@pytest.mark.slow  # test_own_served.py has resumed loops
@pytest.mark.parametrize("how", SAVED)
def test_two_models_in_steps_of_several_passes_or_turns_are_resumed_bit_for_bit(workers, how):
    (whole, weights), _, (resumed, resumed_weights) = workers(3, in_two_lives, how)[0]
    assert whole
    assert all(torch.equal(resumed[name], values) for name, values in whole.items())
    assert all(torch.equal(resumed_weights[name], values) for name, values in weights.items())


def apart(worker: Any, how: str) -> None:
    """Two models of which the first takes its step before the second has its backward pass."""
    first, second = network(), network()
    of_first, of_second = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (first, second))
    worker.distribute(first, second, of_first, of_second, passes=2 if how == "passes" else 1)
    for inputs, targets in worker.feed(points(8), batch_size=BATCH):
        loss = nn.functional.cross_entropy(second(inputs), targets)
        nn.functional.cross_entropy(first(inputs), targets).backward()
        of_first.step()
        if how != "passes":
            loss.backward()


def clipping(rank: int, world_size: int, how: str) -> None:
    def loop(worker: Any) -> None:
        model = network()
        model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2))
        for number, (inputs, targets) in enumerate(worker.feed(points(8), batch_size=BATCH)):
            nn.functional.cross_entropy(model(inputs), targets).backward()
            for _ in range({"late": number, "twice": 2}[how]):
                worker.clip_grad_norm_(model, 1.0)
            optimizer.step()

    own_served(rank, world_size, loop, {"workers": 1})


@pytest.mark.parametrize(
    ("how", "words"),
    [("late", "was not called in the step before, and servers update as"), ("twice", "was called twice in a step, or")],
)
def test_clipping_that_comes_too_late_ends_the_run_with_why(workers, how, words):
    with pytest.raises(VolaryError, match=words):
        workers(2, clipping, how)


def train_apart(rank: int, world_size: int, how: str, consistency: str) -> None:
    own_served(rank, world_size, partial(apart, how=how), {"workers": 1, "consistency": consistency})


@pytest.mark.slow  # clipping that comes too late ends so, too
@pytest.mark.parametrize(
    ("how", "consistency", "words"),
    [
        ("again", "async", r"backward\(\) was called after optimizer.step\(\) of the same batch, and servers make one"),
        ("again", "bsp", r"backward\(\) was called after some optimisers' steps, on a loss that was computed before"),
        ("passes", "bsp", "some optimisers have taken a step with a batch, and others have not; accepted with"),
    ],
)
def test_turns_of_a_batch_that_cannot_be_end_the_run_with_why(workers, how, consistency, words):
    with pytest.raises(SettingError, match=words):
        workers(2, train_apart, how, consistency)


def test_what_is_no_one_update_of_a_batch_is_refused_in_a_sentence_each():
    made = list[Worker]()

    def worker(**strategy: Any) -> Worker:
        script = Script(function="a.py:loop", strategy={"exchange": "server", "workers": 1, **strategy})
        made.append(Worker(loop_of(script), script, Recorder(0), torch.device("cpu"), 0))
        return made[-1]

    first, second = network(), network()
    sgd, adam = torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.Adam(second.parameters())
    distributed = worker()
    distributed.distribute(first, sgd)
    for call, words in [
        (lambda: distributed.distribute(second, adam, passes=2), "other passes or another loss than before"),
        (lambda: distributed.distribute(first), "was given something again; accepted with exchange=server: each once"),
        (
            lambda: worker(consistency="async").clip_grad_norm_(first, 1.0),
            "each gradient is an update of its own, and no step of all workers has one whose norm could be found",
        ),
        (
            lambda: worker(consistency="async").distribute(first, sgd, passes=2),
            r"passes is 2, and workers may leave or be late between .*push_every of async adds up",
        ),
        (
            lambda: worker().distribute(first, sgd, torch.optim.SGD(first[0].parameters(), lr=1)),
            "two optimisers update 0.weight",
        ),
    ]:
        with pytest.raises(VolaryError, match=words):
            call()
    for one in reversed(made):
        one.close()
