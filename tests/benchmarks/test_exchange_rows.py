"""How the rows of the benchmark of the exchange are made from what was measured, and what its peers do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
WANTED = {
    "fc-100m-lossless": "at least 28",
    "fc-100m-lossless-bound": "at most 1.12",
    "fc-100m-lossy": "at most 1.2",
    "fc-100m-lossy-powersgd": "at least 2.4",
    "fc-1g-lossless": "at most 0.20",
    "fc-1g-lossless-hook": "at most 0.38",
    "fc-unlimited-lossless": "at most 0.72",
    "resnet-100m-lossy": "at least 5",
    "lstm-100m-lossless": "at least 1.35",
    "lstm-100m-lossy": "at most 1.2",
    "gpt-1g": "at most 0.85",
    "gpt-1g-bound": "at most 1.35",
    "gpt-100m": "at most 1.03",
    "gpt-1g-lossy": "at most 1.15",
    "gpt-1g-lossy-hook": "at most 0.88",
    "gpt-100m-lossy": "at most 1.15",
    "gpt-100m-lossy-hook": "at most 0.80",
    "dilated-1g": "at most 0.90",
    "dilated-100m": "at most 1.04",
    "dilated-1g-lossy": "at most 0.88",
    "dilated-100m-lossy": "at most 0.92",
    "mixer-1g": "at most 0.85",
    "mixer-100m-lossy": "at most 0.92",
}


@pytest.fixture
def steps(monkeypatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import _exchange_steps

    return _exchange_steps


def found(*, ours: list[float], alone: float, payload_bytes: float = 0, **theirs: list[float]) -> Any:
    """Turns of so many seconds a step."""
    from _exchange_found import Found, Turn

    def turns(seconds: list[float]) -> list[Turn]:
        return [Turn(each, each, 0.0, payload_bytes) for each in seconds]

    return Found(
        ours=turns(ours),
        theirs={kind: turns(each) for kind, each in theirs.items()},
        ours_alone=turns([alone]),
        theirs_alone=turns([2 * alone]),
        peers={kind: f"{kind}, tuned" for kind in theirs},
        tried={},
    )


def row(steps: Any, name: str, measured: Any) -> Any:
    return steps.answer(name, steps.QUESTIONS[name], measured)


def test_the_rows_about_fewer_bytes_are_there_with_what_is_wanted(steps):
    assert {name: steps.QUESTIONS[name].wanted for name in WANTED} == WANTED


def test_a_row_says_how_many_times_quicker_ours_is_or_which_part_of_the_peers_time_it_takes(steps):
    measured = found(ours=[0.5, 0.4, 0.5], alone=0.1, DDP=[15.0, 16.0, 20.0])
    times, part = row(steps, "fc-100m-lossless", measured), row(steps, "fc-unlimited-lossless", measured)
    assert (times.ratio, times.better) == (40, "higher")
    assert (part.ratio, part.better) == (1 / 40, "lower")
    assert (times.value, times.peer_value, times.peer) == (0.5, 16, "DDP, tuned")


def test_the_quicker_hook_is_the_peer(steps):
    measured = found(ours=[1.0, 1.0], alone=0.1, DDP=[9.0, 9.0], fp16=[4.0, 4.0], PowerSGD=[2.0, 2.0])
    found_row = row(steps, "fc-1g-lossless-hook", measured)
    assert (found_row.peer, found_row.ratio) == ("PowerSGD, tuned", 0.5)
    assert row(steps, "fc-1g-lossless", measured).ratio == pytest.approx(1 / 9)


def test_the_bound_is_the_longer_of_compute_and_what_the_link_needs_for_the_bytes_that_ours_sends(steps):
    second_bytes = 0.957 * 100e6 / 8  # of payload in a second
    waiting = found(ours=[3.0], alone=1.0, payload_bytes=2 * second_bytes, DDP=[9.0])
    computing = found(ours=[3.0], alone=1.0, payload_bytes=second_bytes / 2, DDP=[9.0])
    assert row(steps, "fc-100m-lossless-bound", waiting).ratio == pytest.approx(1.5)
    assert row(steps, "fc-100m-lossless-bound", computing).ratio == pytest.approx(3)
    assert row(steps, "fc-100m-lossy", found(ours=[3.0], alone=1.0, PowerSGD=[9.0])).ratio == 3


def test_a_turn_has_ten_steps_or_more_unless_a_slow_link_would_make_it_too_long(steps):
    effort = steps.FULL
    assert effort.steps_in_turn(0.1) == 40
    assert effort.steps_in_turn(2.0) == 10
    assert effort.steps_in_turn(17.5) == 2
    assert effort.steps_in_turn(100.0) == 1


def test_time_to_an_accuracy_counts_to_the_first_evaluation_that_is_as_good(steps):
    from _time_to_accuracy import first_as_good

    accuracies = [(10, 0.2), (20, 0.51), (30, 0.5), (40, 0.6)]
    assert first_as_good(accuracies, 0.5) == 20
    assert first_as_good(accuracies, 0.7) is None


def peers_train(rank: int, world_size: int) -> dict[str, list[float]]:
    """By kind of peer, sums of the parameters after some steps."""
    sys.path.insert(0, str(BENCHMARKS))
    import torch
    from torch import nn

    from _exchange_peers import PEERS, Peers
    from volary.data.memory import InMemory
    from volary.network import build_loss
    from volary.network.losses.cross_entropy import CrossEntropy
    from volary.session.spec import Session
    from volary.train.model import Model

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 400), nn.ReLU(), nn.Linear(400, 4))
    samples = InMemory(torch.randn(64, 300), torch.randint(4, (64,)), 4)
    session = Session(network="softmax", data={"source": "digits", "batch_size": 8}, optimizer={"name": "sgd"})
    peers = Peers(session, Model(module, build_loss(CrossEntropy()), samples, 4, session), module)
    trained = {}
    for kind, settings in PEERS.items():
        peer = peers.make(next(iter(settings.values())))
        peer.run(6)
        trained[kind] = [parameter.detach().double().sum().item() for parameter in peer.module.parameters()]
    return trained


@pytest.mark.slow
def test_each_kind_of_peer_trains_and_its_ranks_stay_equal(workers):
    one, *others = workers(3, peers_train)
    assert list(one) == ["DDP", "fp16", "PowerSGD"]
    assert others == [one] * 2


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_accuracy_is_told_of_a_way_beside_none():
    command = [sys.executable, str(BENCHMARKS / "accuracy.py"), "--quick", "--only", "fp16", "--json", "rows.json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=380).stdout
    (found_row,) = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert (found_row["name"], found_row["peer"], found_row["wanted"]) == ("fp16", "none", "at most 0.5")
    assert found_row["ratio"] == pytest.approx(found_row["peer_value"] - found_row["value"])
    assert found_row["value"] > 50
    assert "KB a step" in said


def test_auto_is_compared_with_the_best_single_choice_of_its_kind_and_the_worst_case_is_the_row(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _exchange_best import answer, compared

    step_s = {
        "none": [5.0, 5.2, 5.1], "factors": [6.0], "auto exact": [5.1],
        "onebit": [0.75], "powersgd": [0.7, 0.9, 0.8], "int8": [1.8], "auto lossy": [0.9],
    }  # fmt: skip
    exact, lossy = compared("1gbit", step_s)
    assert (exact.what, exact.best, exact.ratio) == ("1gbit, exact", "none", pytest.approx(1.0))
    assert (lossy.what, lossy.best, lossy.ratio) == ("1gbit, lossy", "onebit", pytest.approx(1.2))
    worst = answer("auto-best-gpt", [exact, lossy])
    assert (worst.name, worst.peer, worst.unit) == ("auto-best-gpt", "onebit", "s per step (1gbit, lossy)")
