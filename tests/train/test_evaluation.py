"""Evaluation on a second flow: the same figures for any number of workers, and what follows from them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from train._training import Trained, made, session, trained
from volary.data.feed import one_pass
from volary.train.data.opening import open_data

# 40 held-back samples in batches of 9: the last has 4, which 3 workers share unevenly
SOURCE = {"name": "points", "samples": 121}


def evaluated(network: str, source: dict[str, Any] = SOURCE, **settings: Any) -> Any:
    return session(network, source=source, batch_size=9, evaluate={"every": "3 steps"}, **settings)


def evaluate(rank: int, world_size: int) -> Trained:
    return trained(rank, world_size, evaluated("Exact", train={"steps": 7}))


def by_hand(it: Any) -> dict[str, float]:
    module = it.flow.module.eval()
    inputs, targets = (torch.cat(parts) for parts in zip(*_batches(it.coordinator.rank.session), strict=True))
    with torch.no_grad():
        output = module(inputs)
    return {
        "loss": torch.nn.functional.cross_entropy(output, targets).item(),
        "accuracy": (output.argmax(1) == targets).double().mean().item(),
    }


def _batches(session: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(batch.inputs, batch.targets) for batch in one_pass(open_data(session, "test"), 9)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("alone"))
        return evaluate(0, 1)


def test_figures_that_are_no_numbers_are_a_warning_and_training_goes_on():
    # of 41 points the first is for validation, too, and the loss of all samples is the mean
    source = {"name": "spoilt_points", "spoilt": [0]}
    one = session("Exact", source=source, evaluate={"every": "3 steps"}, train={"steps": 6, "on_nonfinite": "skip"})
    kept = trained(0, 1, one)
    assert (kept.outcome, [step for step, _ in kept.metrics]) == ("finished", [3, 6])
    text = "the evaluation gave loss nan: look at the validation data and at the outputs for it"
    assert kept.events("warning") == [{"text": text}] * 2


@pytest.mark.parametrize("world_size", [2, 3])
def test_figures_equal_one_worker_s_on_uneven_data(workers, alone, world_size):
    first, *others = workers(world_size, evaluate)
    assert [step for step, _ in alone.metrics] == [3, 6, 7], "at the end too"
    assert [step for step, _ in first.metrics] == [3, 6, 7]
    for (_, found), (_, expected) in zip(first.metrics, alone.metrics, strict=True):
        assert found == pytest.approx(expected, abs=1e-6)
    assert not any(one.metrics for one in others), "rank 0 writes them down for all"


LOSS = {"name": "cross_entropy", "metric": "f1", "metrics": ["f1", "by_class", "confusion", "roc_auc"]}


def evaluate_by_class(rank: int, world_size: int) -> Trained:
    source = {**SOURCE, "name": "points_of_classes"}
    return trained(rank, world_size, evaluated("Exact", source=source, loss=LOSS, train={"steps": 7}))


def test_metrics_of_several_sums_equal_one_worker_s_on_uneven_data(workers):
    (_, one), *_ = workers(1, evaluate_by_class)[0].metrics
    first, *_ = workers(3, evaluate_by_class)
    assert first.metrics[0][1] == pytest.approx(one, abs=1e-6)
    assert {"f1", "roc_auc", "confusion[0,1]"} <= set(one)
    assert any(name.startswith("recall[") for name in one)
    assert sum(value for name, value in one.items() if name.startswith("confusion")) == 40, "each sample once"
    best = first.events("best")
    assert best[0] == {"metric": "f1", "value": first.metrics[0][1]["f1"]}


def test_figures_are_those_one_would_compute_by_hand(alone, tmp_path):
    it = made(0, 1, evaluated("Exact"), tmp_path / "c")
    with torch.no_grad():
        for name, parameter in it.flow.module.named_parameters():
            parameter.copy_(alone.parameters[name])
    assert alone.metrics[-1][1] == pytest.approx(by_hand(it), abs=1e-6)


def evaluate_with_statistics(rank: int, world_size: int) -> tuple[list[Any], dict[str, float], list[Any]]:
    one = evaluated("Dropping", train={"steps": 6}, checkpoint={"every": "6 steps"})
    found = trained(rank, world_size, one, "saved")
    resumed = made(rank, world_size, one, "saved")
    resumed.coordinator.saver.resume()
    own = [buffer.tolist() for buffer in resumed.flow.module.buffers()]
    return found.metrics, by_hand(resumed), own


def test_the_figures_are_of_the_network_that_is_saved_whose_statistics_are_rank_0_s(workers):
    (metrics, by_rank_0, of_rank_0), (_, by_rank_1, of_rank_1) = workers(2, evaluate_with_statistics)
    assert metrics[-1][1] == pytest.approx(by_rank_0, abs=1e-5)
    assert of_rank_0 != of_rank_1, "an evaluation lends statistics and does not give them away"
    assert by_rank_1 != by_rank_0


def test_training_ends_after_so_many_evaluations_without_a_better_metric(workers):
    assert [(one.outcome, len(one.rows)) for one in workers(2, stop_early)] == [("finished", 6)] * 2


def stop_early(rank: int, world_size: int) -> Trained:
    # so small a learning rate that nothing gets better
    rule = {"name": "sgd", "lr": 1e-30}
    one = session("Exact", optimizer=rule, evaluate={"every": "2 steps", "patience": 2}, train={"steps": 50})
    return trained(rank, world_size, one)
