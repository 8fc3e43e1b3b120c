"""A loss that is a mean over what counts of the targets: N workers and M parts equal one, under every strategy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from train._served import Kept, served
from train._training import OVERLAPPED, USER_LOSSES, Quick, Trained, assert_parameters, made, session, trained
from train._user_data import Sequences
from train.test_served import over
from volary.exchange.gradients import row_blocks
from volary.session import Session

ROUNDING, STEPS = 1e-11, 15
NOTHING = "no target of a batch counted, as each is ignored: it changed nothing"
LOSSES: dict[str, dict[str, Any]] = {
    "plain": {"name": "cross_entropy"},
    "smoothed": {"name": "cross_entropy", "label_smoothing": 0.1},
    "weighted": {"name": f"{USER_LOSSES}:PositionsWeighted"},
    "masked": {"name": f"{USER_LOSSES}:masked"},
}


def positions(loss: str = "plain", *, differ: bool = False, source: str = "Sequences", **more: Any) -> Session:
    """41 sequences, 10 a step: shares are uneven, and in some nothing counts."""
    more.setdefault("train", {"steps": STEPS})
    one = session("Exact", source={"name": source, "differ": differ}, loss=LOSSES[loss], **more)
    return replace(one, data=replace(one.data, pad=differ))


def strategy(consistency: Any = "bsp", **more: Any) -> dict[str, Any]:
    return {"consistency": consistency, "bucket_mb": 4e-4, **more}


LOCAL = {"name": "local", "period": 1}
PLAIN = {"optimizer": {"name": "sgd", "lr": 0.2}}
RING = {"exchange": {"name": "allreduce", "route": "ring"}}
SHARED = {"exchange": {"name": "allreduce", "route": "shared"}}
WAYS: dict[str, dict[str, Any]] = {
    "as sums come": {"strategy": strategy(**OVERLAPPED)},
    "in parts": {"strategy": strategy(**OVERLAPPED), "train": {"steps": STEPS, "accumulate": 3}},
    "in shared memory": {"strategy": strategy(**SHARED)},
    "in a ring": {"strategy": strategy(**RING), "optimizer": {"name": "adam", "lr": 0.01}},
    "at once": {"strategy": strategy(), "train": {"steps": STEPS, "clip_norm": 0.3, "accumulate": 2}},
    "as factors": {"strategy": strategy(codec="factors")},
    "as chosen": {"strategy": strategy(codec="auto")},
    "by local steps": {"strategy": strategy(LOCAL), **PLAIN},
}
BEHIND = {"exchange": {"name": "allreduce", "route": "torch", "behind": True}}
OVER_SERVERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "bsp": ({"train": {"steps": STEPS, "accumulate": 2}}, {}),
    "ssp": ({}, {"consistency": {"name": "ssp", "staleness": 0}}),
    "local": (PLAIN, {"consistency": LOCAL}),
    "factors": ({}, {"codec": "factors", "transport": "tcp"}),
    "chosen": ({}, {"codec": "auto", "transport": "tcp"}),
}


def by_hand(one: Session) -> tuple[dict[str, Tensor], list[float]]:
    """STEPS steps of torch alone, on whole batches; and their losses. One of which nothing counts is left out."""
    it = made(0, 1, one, "by-hand", disk=Quick())
    module, losses = it.flow.module, []
    rule = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.9)
    for _ in range(STEPS):
        batch = next(it.coordinator.rank.data.feed)
        rule.zero_grad()
        loss = cross_entropy(module(batch.inputs).flatten(0, 1), batch.targets.flatten())
        losses.append(loss.item())
        if (batch.targets != -100).any():
            loss.backward()
            rule.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}, losses


@pytest.mark.parametrize("differ", [False, True])
def test_a_step_is_the_mean_over_the_positions_that_count(tmp_path, monkeypatch, differ):
    monkeypatch.chdir(tmp_path)
    expected, losses = by_hand(positions(differ=differ))
    for pieces in (1, 3):
        found = trained(0, 1, positions(differ=differ, train={"steps": STEPS, "accumulate": pieces}), f"of-{pieces}")
        torch.testing.assert_close(found.parameters, expected, rtol=0, atol=ROUNDING)
        assert found.losses == pytest.approx(losses, nan_ok=True)


def on_several(rank: int, world_size: int, sessions: dict[str, Session]) -> dict[str, Trained]:
    row_blocks.LARGE_BYTES = 64  # of this process: layers may travel as factors
    return {name: trained(rank, world_size, one, name, disk=Quick()) for name, one in sessions.items()}


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool, str], Trained]:
    """One worker's, in one part, by its loss, whether lengths differ, and the way of which optimiser and train are."""
    monkeypatch.chdir(tmp_path)

    def found(loss: str, differ: bool, way: str) -> Trained:
        how = {**WAYS, **{name: settings for name, (settings, _) in OVER_SERVERS.items()}}[way]
        train = {key: value for key, value in how.get("train", {"steps": STEPS}).items() if key != "accumulate"}
        more = {"optimizer": how["optimizer"]} if "optimizer" in how else {}
        return trained(0, 1, positions(loss, differ=differ, train=train, **more), f"{loss}-{differ}-{way}")

    return cache(found)


def assert_equal(found: Trained, expected: Trained, which: str) -> None:
    assert_parameters(found, expected, ROUNDING, which)
    torch.testing.assert_close(
        torch.tensor(found.losses), torch.tensor(expected.losses), rtol=1e-5, atol=1e-6, equal_nan=True
    )


@pytest.mark.parametrize(("loss", "differ"), [("plain", True), pytest.param("smoothed", False, marks=pytest.mark.slow)])
def test_workers_equal_one_in_every_way_that_sums_travel(workers, alone, loss, differ):
    sessions = {name: positions(loss, differ=differ, **how) for name, how in WAYS.items()}
    for found in workers(3, on_several, sessions):
        for name, one in found.items():
            assert_equal(one, alone(loss, differ, name), name)


@pytest.mark.slow  # two workers and one come above
def test_a_step_behind_two_workers_equal_three(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    behind = {"behind": positions(differ=True, strategy=strategy(**BEHIND))}
    expected = workers(2, on_several, behind)[0]["behind"]
    for found in workers(3, on_several, behind):
        assert_equal(found["behind"], expected, "behind")


@pytest.mark.slow  # as with positions that do not count
@pytest.mark.parametrize("loss", ["weighted", "masked"])
def test_workers_equal_one_with_weights_of_classes_and_with_a_mask_of_one_s_own(workers, alone, loss):
    ways = ("in parts", "by local steps")
    sessions = {name: positions(loss, differ=loss == "masked", **WAYS[name]) for name in ways}
    for found in workers(2, on_several, sessions):
        for name, one in found.items():
            assert_equal(one, alone(loss, loss == "masked", name), name)


def over_servers(rank: int, world_size: int, loss: str, differ: bool) -> dict[str, Kept | None]:
    row_blocks.LARGE_BYTES = 64  # of this process: layers may travel as factors
    return {
        name: served(rank, world_size, over(positions(loss, differ=differ, **how), 2, 1, **strategy), name)
        for name, (how, strategy) in OVER_SERVERS.items()
    }


@pytest.mark.parametrize(("loss", "differ"), [("plain", True), pytest.param("weighted", False, marks=pytest.mark.slow)])
def test_workers_over_servers_equal_one_where_all_make_an_update(workers, alone, loss, differ):
    kept = workers(3, over_servers, loss, differ)[0]
    for name in OVER_SERVERS:
        for parameter, values in alone(loss, differ, name).parameters.items():
            torch.testing.assert_close(
                kept[name].parameters[parameter], values, rtol=0, atol=ROUNDING, msg=lambda text, name=name: name + text
            )


def unsaid(rank: int, world_size: int) -> Trained:
    one = positions(train={"steps": 3})
    return trained(
        rank, world_size, replace(one, loss=session("Exact", loss=f"{USER_LOSSES}:unsaid").loss), disk=Quick()
    )


def test_a_loss_of_one_s_own_that_does_not_say_what_it_divides_by_is_warned_of(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found in workers(2, unsaid):
        (text,) = [one["text"] for one in found.events("warning") if "a part of the batch" in one["text"]]
        assert text.startswith("loss '_user_losses.py:unsaid' is a mean over a part of the batch (a sum divided by ")
        assert text.endswith("accepted: counted(target) beside it, which gives what the loss divides by")
    assert not [one for one in unsaid(0, 1).events("warning") if "a part of" in one["text"]], "nothing is divided"


def nothing_counts(rank: int, world_size: int) -> tuple[Trained, Kept | None]:
    one = positions(source="NothingCounts", train={"steps": 3}, evaluate={"every": "3 steps"})
    kept = served(rank, world_size, over(one, 1, 1), "over-servers")
    return trained(rank, world_size, one, disk=Quick()), kept


def test_batches_in_which_nothing_counts_change_nothing_and_it_is_said_once(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    begun = made(0, 1, positions(source="NothingCounts"), disk=Quick()).flow.module
    (found, kept), _ = workers(2, nothing_counts)
    for name, values in begun.named_parameters():
        assert torch.equal(found.parameters[name], values)
        assert torch.equal(kept.parameters[name], values)
    said, of_figures = (one["text"] for one in found.events("warning"))
    assert said == NOTHING
    assert of_figures.startswith("the evaluation gave accuracy nan: ")
    assert [one["text"] for one in kept.told("warning")] == [NOTHING]
    assert math.isnan(kept.told("evaluated")[-1]["figures"]["accuracy"])
    assert all(math.isnan(loss) for loss in [*found.losses, *kept.losses])


def measured(rank: int, world_size: int) -> Trained:
    return trained(
        rank, world_size, positions("weighted", evaluate={"every": "2 steps"}, train={"steps": 4}), disk=Quick()
    )


def test_figures_are_means_over_what_counts_whoever_measures(workers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    alone = measured(0, 1)
    found = workers(3, measured)[0]
    assert [step for step, _ in found.metrics] == [2, 4]
    for (_, one), (_, other) in zip(found.metrics, alone.metrics, strict=True):
        assert one == pytest.approx(other)
    it = made(0, 1, positions("weighted"), "again", disk=Quick())
    it.flow.module.load_state_dict(alone.parameters)
    inputs, targets = (torch.stack(one) for one in zip(*Sequences("test").samples, strict=True))
    assert alone.metrics[-1][1]["loss"] == pytest.approx(it.flow.criterion(it.flow.module(inputs), targets).item())
