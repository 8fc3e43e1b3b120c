"""Gradients over servers are clipped by the norm of all of them, as on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from train._served import Kept, served
from train._training import USER_LOSSES, USER_NETWORKS, Trained, session, trained
from train.test_equal_workers import RULES
from train.test_rounding import digits
from train.test_served import assert_equal, over
from volary.errors import SettingError
from volary.session import Session


def clipped(network: str = "Exact", *, norm: float = 0.05, **more: object) -> Session:
    train = {"steps": 20, "clip_norm": norm, **more.pop("train", {})}  # type: ignore[dict-item]
    return session(network, **{"optimizer": RULES["sgd"], "train": train, **more})  # type: ignore[arg-type]


def _lenet() -> Session:
    of_digits = digits(f"{USER_NETWORKS}:LeNet64", seed=0)
    return replace(of_digits, train=replace(of_digits.train, clip_norm=0.3))


ALIKE: dict[str, Session] = {
    # 41 samples: 10 of them a step are divided unevenly, and the epoch's last one is for one worker alone
    "by norm": clipped(),
    "in no step": clipped(norm=1e9),
    "in parts": clipped(train={"accumulate": 2}),
    "by value, too": clipped(train={"clip_value": 0.01}, norm=0.03),
    "whole parameters": clipped(optimizer={"name": f"{USER_LOSSES}:OwnRule", "lr": 0.2}),
    "shared": clipped("Tied64", norm=0.5),
    "adam": clipped("Pictures", optimizer=RULES["adam"]),
    "uneven": session(
        "Scores", of={"bits": 64}, source={"name": "Uneven"}, loss=f"{USER_LOSSES}:sloping", batch_size=4,
        shuffle=False, train={"steps": 12, "clip_norm": 0.1},
    ),
    "lenet": _lenet(),
    "local, of one": clipped(),
}  # fmt: skip
SWIFT = ("by norm", "in parts", "by value, too", "uneven")


def learn(rank: int, world_size: int, workers: int, names: tuple[str, ...]) -> dict[str, Kept | None]:
    servers = world_size - workers
    found = {}
    for name in names:
        how = {"consistency": {"name": "local", "period": 2}} if name.startswith("local") else {}
        one = over(ALIKE[name], workers, servers, replicas=min(2, servers), **how)
        found[name] = served(rank, world_size, one, name.replace(" ", "-").replace(",", ""))
    return found


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Trained]:
    """The same session on one device."""
    monkeypatch.chdir(tmp_path)
    return cache(lambda name: trained(0, 1, ALIKE[name], name))


@pytest.mark.parametrize(
    ("count", "servers", "names"),
    [(3, 1, SWIFT), (1, 1, ("local, of one",)), pytest.param(3, 2, tuple(ALIKE)[:-1], marks=pytest.mark.slow)],
)
def test_workers_whose_servers_clip_equal_one_device(workers, alone, count, servers, names):
    kept = workers(count + servers, learn, count, names)[0]
    for name in names:
        assert kept[name].outcome == kept[name].run_outcome == "finished"
        assert_equal(kept[name].parameters, alone(name), name)


def test_a_bound_that_is_above_all_norms_changes_nothing_and_a_low_one_does(alone):
    values = {name: alone(name).parameters for name in ("by norm", "in no step")}
    with pytest.raises(AssertionError):
        assert_equal(values["by norm"], alone("in no step"), "by norm")


@pytest.mark.parametrize(
    "consistency",
    ["async", {"name": "ssp", "staleness": 2}, {"name": "backup", "epoch": 0.5}],
)
def test_models_without_a_common_step_are_refused_with_the_reason(consistency):
    with pytest.raises(SettingError, match="each gradient is an update of its own"):
        over(clipped(), 2, 1, consistency)


@pytest.mark.parametrize("consistency", ["bsp", "local", {"name": "ssp", "staleness": 0}, {"name": "backup", "k": 1}])
def test_models_with_one_are_accepted(consistency):
    assert over(clipped(), 2, 1, consistency).train.clip_norm == 0.05
