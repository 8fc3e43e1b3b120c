"""Between the steps of workers that keep shares: evaluations, comparisons, histograms, saves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from train._training import Quick, Trained, session, trained
from train.test_equal_workers import ROUNDING, RULES
from train.test_histograms import histograms
from train.test_sharded import LEVEL_2, RING, SHARED

STRATEGIES = {
    "ring": {"partition": LEVEL_2, "exchange": RING},
    "shared memory": {"partition": "sharded", "exchange": SHARED},
}


def looked_at_often(strategy: dict[str, Any]) -> Any:
    """Evaluated, compared and measured in the middle, every time between other steps."""
    return session(
        "Exact",
        source={"name": "points", "samples": 121},
        optimizer=RULES["adam"],
        train={"steps": 13, "compare_replicas": "2 steps", "histograms": "4 steps"},
        evaluate={"every": "3 steps"},
        checkpoint={"every": "5 steps"},
        strategy=strategy,
    )


def look_often(rank: int, world_size: int, strategy: dict[str, Any]) -> Trained:
    return trained(rank, world_size, looked_at_often(strategy), "often", disk=Quick())


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_evaluations_comparisons_histograms_and_saves_between_steps_leave_all_as_on_one_device(workers, strategy):
    alone = look_often(0, 1, {})
    everyone = workers(2, look_often, strategy)
    for found in everyone:
        assert (found.outcome, len(found.rows)) == ("finished", 13)
        assert found.losses == pytest.approx(alone.losses, abs=1e-6)
        for name, expected in alone.parameters.items():
            torch.testing.assert_close(found.parameters[name], expected, rtol=0, atol=ROUNDING)
    first, second = everyone
    assert [step for step, _ in first.metrics] == [step for step, _ in alone.metrics] == [3, 6, 9, 12, 13]
    for (_, found), (_, expected) in zip(first.metrics, alone.metrics, strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert (second.metrics, histograms(second)) == ([], {})
    seen, expected = histograms(first)[4], histograms(alone)[4]  # later ones may be left out, for their time
    assert {kind for kind, _ in seen} == {"weight", "update", "gradient"}
    for key in expected:
        if key[0] != "gradient":  # which is of this worker's samples
            assert seen[key][:3] == pytest.approx(expected[key][:3], abs=1e-6), key
