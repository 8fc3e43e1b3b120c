"""How weights, gradients and updates are spread: as they are, on one worker, and training goes on as without."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from train._training import OVERLAPPED, Trained, session, trained
from volary.session.values.period import Period
from volary.train.recording.histograms import BINS, MOST_VALUES, Histograms
from volary.train.recording.recorder import Recorder

IN_PIECES = {**OVERLAPPED, "bucket_mb": 1e-4}


def histograms(found: Trained) -> dict[int, dict[tuple[str, str], Any]]:
    """By step, then by kind and name."""
    return {
        one["step"]: {(kind, name): rest for kind, name, *rest in one["histograms"]}
        for one in found.said
        if "histograms" in one
    }


def with_and_without(rank: int, world_size: int, strategy: dict[str, Any]) -> tuple[Trained, Trained]:
    def of(every: str) -> Any:
        return session("Exact", train={"steps": 4, "histograms": every}, strategy=strategy)

    return trained(rank, world_size, of("2 steps"), "with"), trained(rank, world_size, of("never"), "without")


@pytest.mark.parametrize(("world_size", "strategy"), [(1, {}), (2, IN_PIECES)])
def test_one_worker_looks_at_each_parameter_and_training_is_as_without(workers, world_size, strategy):
    for rank, (looked, plain) in enumerate(workers(world_size, with_and_without, strategy)):
        assert histograms(plain) == {}
        for name, parameter in looked.parameters.items():
            assert torch.equal(parameter, plain.parameters[name])
        assert looked.losses == plain.losses
        found = histograms(looked)
        if rank:
            assert found == {}
            continue
        assert 2 in found, "and what would take more than its share of the time is left out"
        for name, parameter in looked.parameters.items():
            low, high, magnitude, counts = found[max(found)]["weight", name]
            assert ("update", name) in found[2]
            assert (("gradient", name) in found[2]) == (not name.startswith("unused"))
            if 4 in found:
                assert low == pytest.approx(float(parameter.min()), rel=1e-5)
                assert high == pytest.approx(float(parameter.max()), rel=1e-5)
                assert magnitude == pytest.approx(float(parameter.abs().mean()), rel=1e-5)
            assert sum(counts) == parameter.numel()


def test_a_layer_that_sends_factors_trains_on_and_shows_no_gradient(workers):
    for rank, (looked, plain) in enumerate(workers(2, with_and_without, {**OVERLAPPED, "codec": "factors"})):
        assert looked.losses == plain.losses
        if not rank:
            found = histograms(looked)[2]
            assert {name for kind, name in found if kind == "update"} == set(looked.parameters)
            assert {name for kind, name in found if kind == "gradient"} < set(looked.parameters)


def test_what_is_counted_is_what_the_step_changed():
    module = nn.Linear(300, 300)
    recorder = Recorder(0)
    looking = Histograms(module, recorder, Period(1, "steps"), lambda: None)
    looking.begin(0, 10)
    module(torch.ones(2, 300)).sum().backward()
    before = module.weight.detach().clone()
    with torch.no_grad():
        module.weight += 0.5
    looking.end()
    ((said),) = [one["histograms"] for one in recorder.events]
    found = {(kind, name): rest for kind, name, *rest in said}
    low, high, magnitude, counts = found["update", "weight"]
    assert (low, high, magnitude) == pytest.approx((0.5, 0.5, 0.5), abs=1e-6)
    assert sum(counts) == sum(found["weight", "weight"][3]) <= MOST_VALUES
    assert len(found["weight", "weight"][3]) == BINS
    assert found["gradient", "bias"][:3] == pytest.approx((2.0, 2.0, 2.0))
    assert found["weight", "weight"][2] == pytest.approx(float((before + 0.5).abs().mean()), rel=0.05)
