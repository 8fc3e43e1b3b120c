"""Updates under the next forward in a loop of one's own: as on one worker, and nothing of it is silently wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from train._own_loops import CLASSES, FEATURES, as_a_session, network, points
from train._training import OVERLAPPED, session, trained
from train._user_data import points as session_points
from train.test_own_loop import ROUNDING, call
from volary.errors import BadInput, SettingError
from volary.session.script import Script
from volary.train.model import build_model
from volary.train.own.early.early_update import EarlyUpdate
from volary.train.state.seeds import seed_all

BEHIND = {"exchange": {"name": "allreduce", "behind": True, "route": "torch"}}


def steps(worker: Any, samples: int, epochs: int = 3) -> Iterator[Any]:
    for _ in range(epochs):
        yield from worker.feed(points(samples), batch_size=4)


def normalised() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)).double()


def momentum(worker: Any, early: bool, samples: int = 25) -> dict[str, Any]:
    """The last of 7 batches has one sample."""
    model = network()
    model, optimizer = worker.distribute(
        model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9), early_update=early
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.7)
    for inputs, targets in steps(worker, samples):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        schedule.step()
    return state_of(model, optimizer)


def groups_and_passes(worker: Any, early: bool) -> dict[str, Any]:
    """Two passes a step, and one in the last; settings of a group change on the way."""
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.05}, {"params": model[2].parameters(), "weight_decay": 0.1}]
    model, optimizer = worker.distribute(model, torch.optim.AdamW(groups, lr=0.02), passes=2, early_update=early)
    for number, (inputs, targets) in enumerate(steps(worker, 28)):
        (cross_entropy(model(inputs), targets) / 2).backward()
        if number % 2 or number == 20:
            optimizer.step()
            optimizer.zero_grad()
        if number == 9:
            optimizer.param_groups[1]["betas"] = (0.8, 0.9)
    return state_of(model, optimizer)


def clipped(worker: Any, early: bool) -> dict[str, Any]:
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2), early_update=early)
    norms = []
    for inputs, targets in steps(worker, 23):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        norms.append(float(worker.clip_grad_norm_(model, 0.05)))
        optimizer.step()
    return {"norms": torch.tensor(norms, dtype=torch.float64), **state_of(model, optimizer)}


def loaded(worker: Any, early: bool) -> dict[str, Any]:
    """The optimiser's state is saved and loaded on the way; a head is replaced, and everything distributed again."""
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.Adam(model.parameters(), lr=0.02), early_update=early)
    for number, (inputs, targets) in enumerate(steps(worker, 24)):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if number == 5:
            kept = copy.deepcopy(optimizer.state_dict())  # torch gives what goes on changing
            assert len(kept["state"]) == 4
        if number == 8:
            optimizer.load_state_dict(kept)
        if number == 12:
            model[2] = nn.Linear(8, CLASSES, bias=False).double()
            nn.init.constant_(model[2].weight, 0.1)
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
            worker.distribute(model, optimizer, early_update=early)
    return state_of(model, optimizer)


def with_buffers(worker: Any, early: bool) -> dict[str, Any]:
    """Rank 0's statistics, and what all find out together, while gradients travel."""
    model = normalised()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), early_update=early)
    for inputs, targets in steps(worker, 24):
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        assert worker.gather(worker.rank) == list(range(worker.world_size))
        worker.mean(loss)
    return dict(model.named_buffers())


def whole_by_need(worker: Any, early: bool) -> dict[str, Any]:
    """Nothing says that it updates each value on its own: gradients are there, as without it."""
    model = network()
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.05)
    model, optimizer = worker.distribute(model, optimizer, early_update=early)
    for inputs, targets in steps(worker, 24):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        assert model[0].weight.grad is not None
        optimizer.step()
    return state_of(model, optimizer)


def state_of(model: nn.Module, optimizer: Any) -> dict[str, Any]:
    kept = optimizer.state_dict()["state"]
    found = {f"{number}.{key}": value for number, one in kept.items() for key, value in one.items()}
    return {**found, **model.state_dict()}


EQUAL = [momentum, groups_and_passes, clipped, loaded, whole_by_need]


def each(rank: int, world_size: int) -> Any:
    found = {}
    for attempt, loop in enumerate([*EQUAL, with_buffers]):
        found[loop.__name__], recorder = call(loop_of(loop), rank, world_size, attempt, strategy=OVERLAPPED)
        assert recorder.step == len(recorder.rows) > 0
    return found


def loop_of(loop: Any) -> Any:
    return lambda worker: loop(worker, early=True)


@pytest.mark.slow  # the one below compares with a session bit for bit
def test_with_early_updates_two_workers_come_to_what_one_comes_to(workers):
    alone = {loop.__name__: call(loop_of(loop), 0, 1, 0)[0] for loop in EQUAL}
    first, second = workers(2, each)
    for name, expected in alone.items():
        for found in (first[name], second[name]):
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                torch.testing.assert_close(
                    found[key], value, rtol=0, atol=10 * ROUNDING, msg=lambda text, at=f"{name}: {key}": f"{at}: {text}"
                )
    for name, buffer in first["with_buffers"].items():
        assert torch.equal(second["with_buffers"][name], buffer)


def own_and_session(rank: int, world_size: int) -> Any:
    pairs = []
    for attempt, strategy in enumerate([OVERLAPPED, BEHIND] if world_size > 1 else [OVERLAPPED]):
        of = session(
            "Wide",
            shuffle=False,
            source={"name": "points", "samples": 40},
            strategy={"workers": world_size, **strategy},
        )
        theirs = trained(rank, world_size, of, f"checkpoints-{attempt}").parameters
        seed_all(of.train.seed)
        model = build_model(of, torch.device("cpu")).module

        def loop(worker: Any, model: nn.Module = model) -> Any:
            as_a_session(worker, model, session_points("train", 40))
            worker.finish()  # a step behind, the last update comes here
            return {name: one.detach().clone() for name, one in model.named_parameters()}

        own, _ = call(loop, rank, world_size, 50 + attempt, strategy=strategy, early_update=True)
        pairs.append((theirs, own))
    return pairs


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_loop_of_ones_own_with_early_updates_and_a_sessions_are_one_thing_bit_for_bit(workers, world_size):
    for pairs in workers(world_size, own_and_session):
        for theirs, own in pairs:
            assert all(torch.equal(theirs[name], value) for name, value in own.items())


def refused(rank: int, world_size: int) -> list[str]:
    said = []

    def tries(loop: Any, strategy: Any = OVERLAPPED) -> None:
        try:
            call(loop, rank, world_size, len(said), strategy=strategy, early_update=True)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")

    def begun(worker: Any) -> Any:
        model = network()
        return worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def twice(worker: Any) -> None:
        model, _ = begun(worker)
        for inputs, _ in steps(worker, 8):
            model(inputs).sum().backward()

    def by_another(worker: Any) -> None:
        model, _ = begun(worker)
        model(torch.randn(2, FEATURES).double()).sum().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()

    def grown(worker: Any) -> None:
        model, optimizer = begun(worker)
        optimizer.param_groups.append(optimizer.param_groups[0] | {"params": []})
        model(torch.randn(2, FEATURES).double()).sum().backward()
        optimizer.step()

    def clips(worker: Any, parameters: Any = lambda model: model) -> None:
        model, _ = begun(worker)
        model(torch.randn(2, FEATURES).double()).sum().backward()
        worker.clip_grad_norm_(parameters(model), 1.0)

    tries(lambda worker: worker.distribute(network()))
    tries(twice)
    tries(by_another)
    tries(grown)
    tries(lambda worker: clips(worker, lambda model: model[0].parameters()))
    tries(clips, BEHIND)
    for looks in LOOKS:
        tries(lambda worker, looks=looks: looks_at(*begun(worker), looks))
    return said


def looks_at(model: nn.Module, optimizer: Any, looks: Any) -> None:
    model(torch.randn(2, FEATURES).double()).sum().backward()
    looks(model, optimizer)
    optimizer.step()


def scales(_: nn.Module, optimizer: Any) -> None:
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(1))
    scaler.unscale_(optimizer)


LOOKS = [
    lambda model, _: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
    lambda model, _: nn.utils.clip_grad_value_(list(model.parameters()), 1.0),
    lambda model, _: model[0].weight.grad.norm(),
    scales,
]


def test_what_early_updates_cannot_be_right_for_is_refused_in_one_sentence(workers):
    for said in workers(2, refused):
        assert [one.partition("; accepted")[0] for one in said] == [
            "BadInput: worker.distribute: early_update is true, and 0 of the given optimisers update the model",
            "SettingError: backward() was called again before optimizer.step(), and with early_update the gradients of "
            "the call before are summed already",
            "SettingError: another SGD than worker.distribute was given updates a model that has early_update",
            "SettingError: SGD has other parameters or groups than before",
            "SettingError: worker.clip_grad_norm_ was given parameters without 2.weight",
            "SettingError: worker.clip_grad_norm_ needs all gradients of this step, and with exchange.behind=true they "
            "come in the next one",
            *[
                "SettingError: a gradient was used between backward() and optimizer.step(), and with early_update it "
                "is still on its way"
            ]
            * len(LOOKS),
        ]
        assert all("; accepted" in one for one in said)


def test_a_step_behind_needs_a_loop_that_looks_at_no_gradients():
    with pytest.raises(SettingError, match=r"accepted: early_update=true, or allreduce without behind"):
        Script(program="mine.py", strategy={"workers": 2, **BEHIND})
    assert Script(program="mine.py", strategy={"workers": 2, **BEHIND}, early_update=True).early_update


def test_an_optimiser_says_why_it_updates_all_at_once():
    model = network()
    trained = dict(model.named_parameters())
    adafactor = EarlyUpdate(torch.optim.Adafactor(model.parameters()), trained, lambda: None)
    assert adafactor.why_whole == "nothing says that Adafactor updates each value on its own"
    sparse = EarlyUpdate(torch.optim.SGD(model.parameters(), lr=0.1), trained, lambda: None, sparse=True)
    assert sparse.why_whole == "it has layers with sparse gradients, which are made of all values"
    part = EarlyUpdate(torch.optim.SGD(model[0].parameters(), lr=0.1), trained, lambda: None)
    assert part.why_whole == "2.weight is in no group of the optimiser"


def test_clipping_wants_one_distributed_model():
    def loop(worker: Any) -> None:
        with pytest.raises(BadInput, match=r"parameters of 0 distributed models; accepted: of one"):
            worker.clip_grad_norm_(network(), 1.0)

    call(loop, 0, 1, 0)
