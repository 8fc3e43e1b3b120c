"""Elastic averaging in a loop of one's own over servers: a worker's own copy, and the centre, measured and saved."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from train._own_loops import as_a_session, points
from train._own_served import Looped, kept, own_served
from train._served import served
from train._training import session
from train._user_data import points as points_of_session
from volary.train.model import build_model
from volary.train.state.seeds import seed_all

RHO, PERIOD, DECAY = 0.2, 3, 0.9
SAMPLES, BATCH, STEPS = 40, 10, 20  # periods span epochs, and the last is cut short
EXACT = 1e-12


def over(period: int) -> dict[str, Any]:
    consistency = {"name": "elastic", "rho": RHO, "period": period}
    return {"workers": 1, "consistency": consistency, "exchange": {"name": "server", "servers": 1}}


OF = session("Wide", shuffle=False, source={"name": "points", "samples": SAMPLES}, strategy=over(PERIOD))


def model_of_session() -> nn.Module:
    seed_all(OF.train.seed)
    return build_model(OF, torch.device("cpu")).module


def as_published() -> tuple[list[list[Tensor]], list[Tensor]]:
    """The centre after each pull, and the worker's own in the end, by Algorithm 1 (EAMSGD: 2) of the paper."""
    model, data = model_of_session(), points_of_session("train", SAMPLES)
    rule = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    centres = [[one.detach().clone() for one in model.parameters()]]
    for step, first in enumerate([*range(0, SAMPLES, BATCH)] * (STEPS * BATCH // SAMPLES)):
        pulls = [RHO * (own.detach() - there) for own, there in zip(model.parameters(), centres[-1], strict=True)]
        inputs, targets = (one[first : first + BATCH] for one in data.tensors)
        rule.zero_grad()
        nn.functional.cross_entropy(model(inputs.double()), targets).backward()
        rule.step()
        if step % PERIOD == 0:
            with torch.no_grad():
                for own, by in zip(model.parameters(), pulls, strict=True):
                    own.sub_(by)
            centres.append([there + by for there, by in zip(centres[-1], pulls, strict=True)])
    return centres, [one.detach() for one in model.parameters()]


def measured(worker: Any) -> tuple[dict[str, Tensor], dict[str, float], dict[str, Tensor]]:
    """The worker's own parameters in the end; sums of those that are measured then, within a period; the own again."""
    model = model_of_session()
    own = as_a_session(worker, model, points_of_session("train", SAMPLES))

    def sums(_: Any) -> dict[str, float]:
        return {name: float(one.sum()) for name, one in model.named_parameters()}

    found = worker.evaluate(sums, DataLoader(points(4), batch_size=4))
    return own, found, {name: one.detach().clone() for name, one in model.named_parameters()}


def own_and_session(rank: int, world_size: int) -> tuple[dict[str, Tensor], Looped] | None:
    whole, own = served(rank, world_size, OF, "session"), own_served(rank, world_size, measured, over(PERIOD), "own")
    return None if whole is None or own is None else (whole.parameters, own)


def test_over_servers_a_loop_goes_as_published_and_as_a_sessions_and_its_centre_is_measured_and_saved(workers):
    of_session, loop = workers(2, own_and_session)[0]
    own, sums, afterwards = loop.value
    centres, expected = as_published()
    for number, name in enumerate(own):
        torch.testing.assert_close(own[name], expected[number], rtol=0, atol=EXACT)
        torch.testing.assert_close(loop.weights[name], centres[-1][number], rtol=0, atol=EXACT)
        # the pull of the period under way leaves with its end
        assert sums[name] == pytest.approx(float(centres[-2][number].sum()), abs=1e-9)
        assert torch.equal(loop.weights[name], of_session[name]), "bit for bit"
        assert torch.equal(afterwards[name], own[name])


def averaged(worker: Any) -> tuple[dict[str, Tensor], dict[str, float]]:
    """The average of the centre in the end, and sums of what is measured where the model has it."""
    model, data = model_of_session(), points_of_session("train", SAMPLES)
    model, rule = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9))
    average = worker.average(model, decay=DECAY)
    loader = worker.feed(DataLoader(data, batch_size=BATCH))
    for _ in range(STEPS * BATCH // SAMPLES):
        for inputs, targets in loader:
            rule.zero_grad()
            nn.functional.cross_entropy(model(inputs.double()), targets).backward()
            rule.step()

    def sums(_: Any) -> dict[str, float]:
        return {name: float(one.sum()) for name, one in model.named_parameters()}

    with average.applied():
        return average_of(model), worker.evaluate(sums, DataLoader(points(4), batch_size=4))


def average_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: one.detach().clone() for name, one in model.named_parameters()}


def over_one_server(rank: int, world_size: int) -> Looped | None:
    return own_served(rank, world_size, averaged, over(PERIOD))


def test_over_servers_the_average_of_a_loop_is_that_of_the_centre(workers):
    found, sums = workers(2, over_one_server)[0].value
    centres, _ = as_published()
    for number, name in enumerate(found):
        expected = centres[1][number]
        for centre in centres[2:-1]:  # the pull of the period under way leaves with its end
            expected = DECAY * expected + (1 - DECAY) * centre[number]
        torch.testing.assert_close(found[name], expected, rtol=0, atol=EXACT)
        assert sums[name] == pytest.approx(float(expected.sum()), abs=1e-9)


def in_two_lives(rank: int, world_size: int, leave: int, codec: str) -> tuple[Looped, Looped] | None:
    strategy = over(2) | {"codec": codec}
    whole = own_served(rank, world_size, kept, strategy, "whole")
    own_served(rank, world_size, partial(kept, leave=leave), strategy, "cut")
    resumed = own_served(rank, world_size, kept, strategy, "cut")
    return None if whole is None or resumed is None else (whole, resumed)


@pytest.mark.parametrize(("leave", "codec"), [(8, "none"), pytest.param(12, "int8", marks=pytest.mark.slow)])
def test_over_servers_a_resumed_loop_around_a_centre_ends_as_an_uninterrupted_one_bit_for_bit(workers, leave, codec):
    whole, resumed = workers(2, in_two_lives, leave, codec)[0]
    assert resumed.value["seen"] == whole.value["seen"][leave:]
    for name, values in whole.value["last"].items():
        assert torch.equal(resumed.value["last"][name], values), name
    assert all(torch.equal(resumed.weights[name], values) for name, values in whole.weights.items())
    assert not all(torch.equal(whole.value["last"][name], values) for name, values in whole.weights.items())
