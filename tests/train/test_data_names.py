"""A run, its resume and `volary evaluate` agree with their data by the names of classes and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from volary.driver.ending import NoWatcher
from volary.driver.resume import resume
from volary.driver.start import start
from volary.errors import DataError, RanksDiffer, VolaryError
from volary.run.directory import RunDirectory
from volary.session import Session
from volary.train.afterwards import evaluate_run
from volary.train.model import build_model

CLASSES = ("ape", "cat", "dog", "eel")


def table(path: str, classes: tuple[str, ...] = CLASSES, columns: str = "ab", rows: int = 24) -> str:
    """Rows of which the class says the numbers."""
    lines = [f"label,{','.join(columns)}\n"]
    for row in range(rows):
        name = classes[row % len(classes)]
        cells = {"a": CLASSES.index(name) - 1.5 if name in CLASSES else 0.0, "b": row % 5}
        lines.append(f"{name},{','.join(str(cells[column]) for column in columns)}\n")
    Path(path).write_text("".join(lines))
    return path


def trained(**settings: Any) -> RunDirectory:
    """Four steps on the four classes, unless it says otherwise."""
    table("train.csv"), table("test.csv", ("dog", "cat"))
    return start(session("train.csv", "test.csv", **settings), NoWatcher()).directory


def session(learnt: str, validation: str, **settings: Any) -> Session:
    source = {"name": "csv", "train": learnt, "test": validation, "target": "label", "standardise": False}
    return Session(
        network="softmax",
        data={"source": source, "batch_size": 12},
        optimizer={"name": "sgd", "lr": 0.1},
        evaluate={"every": "4 steps"},
        **({"train": {"steps": 4}, "run": {"name": "it"}} | settings),
    )


@pytest.mark.slow  # names of classes come above
def test_an_evaluation_on_other_data_numbers_classes_as_the_run_does(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = trained()
    expected = evaluate_run(run, 4)
    fewer = session(table("fewer.csv", ("dog", "cat"), "ba"), table("test2.csv", ("dog", "cat"), "ba"))
    assert evaluate_run(run, 4, session=fewer) == pytest.approx(expected)
    more = session(table("more.csv", (*CLASSES, "yak")), "test.csv")
    with pytest.raises(DataError) as problem:
        evaluate_run(run, 4, session=more)
    assert str(problem.value) == (
        "data.source: has the class yak, which the data that the run was begun with has not; "
        "accepted: ape, cat, dog, eel"
    )
    numbered = session(table("numbered.csv", ("0", "1")), "numbered.csv")
    with pytest.raises(
        DataError, match=r"^data.source: has the class 0, which the data that the run was begun with ha"
    ):
        evaluate_run(run, 4, session=numbered)
    with pytest.raises(DataError, match=r"^data.source: has the columns a, the data that the run was begun with a, b"):
        evaluate_run(run, 4, session=session(table("narrow.csv", columns="a"), "narrow.csv"))


@pytest.mark.slow  # names of columns come above
@pytest.mark.parametrize(
    "strategy",
    [pytest.param({}, id="allreduce"), pytest.param({"exchange": "server"}, id="server", marks=pytest.mark.slow)],
)
def test_a_resumed_run_reads_its_columns_by_name_and_refuses_other_classes(strategy, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = trained(strategy=strategy)
    whole = trained(strategy=strategy, train={"steps": 8}, run={"name": "whole"})
    table("train.csv", columns="ba"), table("test.csv", ("dog", "cat"), columns="ba")
    ended = resume(run, NoWatcher(), ("train.steps=8",))
    assert (ended.state, ended.step) == ("finished", 8)
    assert evaluate_run(run, 8) == pytest.approx(evaluate_run(whole, 8))
    table("train.csv", ("ape", "cat", "dog", "yak"))
    with pytest.raises(
        VolaryError, match=r"data.source: has the class yak, which the data that the run was begun with has"
    ):
        resume(run, NoWatcher(), ("train.steps=12",))


OF_MY_RANK = """
import os
import torch

class Points(torch.utils.data.TensorDataset):
    def __init__(self, split):
        super().__init__(torch.randn(24, 2), torch.arange(24) % 2)
        self.classes = [["ape", "cat"], ["cat", "ape"]][int(os.environ.get("VOLARY_RANK", 0))]
"""


@pytest.mark.parametrize("strategy", [{}, {"exchange": "server"}], ids=["allreduce", "server"])
def test_workers_whose_data_numbers_classes_differently_are_refused(strategy, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("points.py").write_text(OF_MY_RANK)
    own = Session(
        network="softmax",
        data={"source": "points.py:Points", "batch_size": 12},
        train={"steps": 4},
        strategy={"workers": 2, **strategy},
        run={"name": "it"},
    )
    with pytest.raises(RanksDiffer, match=r"  classes of the data: .*(ape, cat|cat, ape) \([0-9a-f]{12}\)"):
        start(own, NoWatcher())


def test_a_run_of_more_classes_than_other_data_has_keeps_its_network(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    numbered = session(table("numbered.csv", ("0", "1")), "numbered.csv")
    model = build_model(numbered, torch.device("cpu"), '[[], 4, ["a", "b"]]')
    assert (model.classes, model.module(torch.zeros(1, 2)).shape) == (4, (1, 4))
    with pytest.raises(
        DataError, match=r"^data.source: has 2 classes, the data that the run was begun with 1; accepted"
    ):
        build_model(numbered, torch.device("cpu"), '[[], 1, ["a", "b"]]')
