"""`worker.metric` takes outputs and targets, and refuses others in a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from _workers import joined
from volary.errors import BadInput, RanksDiffer, SettingError
from volary.train.own.measured import measured, metric_of, pairs

SCORES, CLASSES = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("recal", {}, "unknown name 'recal'; did you mean 'recall'"),
        ("f1", {"avarage": "micro"}, "worker.metric: f1 was given avarage; its settings: average"),
        ("accuracy", {"k": 3}, "worker.metric: accuracy was given k; its settings: none"),
        ("topk", {"k": 0}, "k is 0; accepted: a whole number from 1"),
    ],
)
def test_a_metric_or_setting_that_is_unknown_is_refused(name: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((BadInput, SettingError), match=sentence):
        metric_of(name, settings)


@pytest.mark.parametrize(
    ("name", "outputs", "targets", "sentence"),
    [
        ("f1", SCORES, CLASSES[:5], r"outputs \(6, 3\) and targets \(5,\) of torch.int64; accepted: scores"),
        ("f1", SCORES, CLASSES.float(), r"targets \(6,\) of torch.float32; accepted: scores \(n, classes\)"),
        ("r2", SCORES, CLASSES, "accepted: values of one shape"),
        ("f1", SCORES, CLASSES + 1, "f1 was given the target 3 and 3 scores; accepted: 0 to 2, or -100 for one that"),
        ("f1", [SCORES], [CLASSES - 1], "f1 was given the target -1 and 3 scores; accepted: 0 to 2"),
        ("f1", [SCORES], [], "1 outputs and 0 targets; accepted: as many"),
    ],
)
def test_outputs_that_do_not_fit_the_targets_are_refused(name: str, outputs: Any, targets: Any, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        pairs(metric_of(name, {}), outputs, targets)


def test_positions_of_sequences_count_in_either_order_of_classes_and_time() -> None:
    steps, targets = SCORES.reshape(3, 2, 3), CLASSES.reshape(3, 2)
    ((scores, flat),) = pairs(metric_of("f1", {}), steps, targets)
    assert torch.equal(scores, SCORES)
    assert torch.equal(flat, CLASSES)
    ((turned, _),) = pairs(metric_of("f1", {}), steps.movedim(2, 1), targets)
    assert torch.equal(turned, SCORES)


def ask_for_another(rank: int, world_size: int) -> None:
    metric = metric_of("f1", {"average": "micro" if rank else "macro"})
    measured(metric, SCORES, CLASSES, joined())


def test_workers_that_ask_for_different_metrics_are_told_which(workers: Any) -> None:
    with pytest.raises(RanksDiffer, match=r"F1\(average='macro'\) of 3 classes on rank 0, F1\(average='micro'\)"):
        workers(2, ask_for_another)
