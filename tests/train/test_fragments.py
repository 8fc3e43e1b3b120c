"""Local steps whose fragments are exchanged in turn: against one process that does by hand what all workers do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from _workers import joined
from train._by_hand import step_apart
from train._own_workers import worker_in
from train._training import OVERLAPPED, Quick, Trained, made, session, trained
from volary.errors import SettingError
from volary.run.checkpoints import Checkpoints
from volary.session import Session, SessionError
from volary.session.script import Script
from volary.train import check_session
from volary.train.recording.recorder import Recorder
from volary.train.state.weights import SavedWeights

ROUNDING, STEPS, ALPHA = 1e-12, 14, 0.25  # 5 steps an epoch, in parts of 2, 2 and 1
INNER = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9, "nesterov": True}
STREAMING = {"name": "local", "period": 4, "fragments": 2, "outer": OUTER}
LAYERS = [["layers.0", "layers.4"], ["layers.2", "unused"]]  # of each fragment
EAGER = STREAMING | {"eager": True}
BEHIND = {"exchange": {"name": "allreduce", "route": "torch", "behind": True}}


def streaming(consistency: dict[str, Any], strategy: dict[str, Any], network: str = "Exact", **more: Any) -> Session:
    strategy = {"consistency": consistency, **strategy}
    more = {"checkpoint": {"every": f"{STEPS} steps"}, "train": {"steps": STEPS}, "optimizer": INNER, **more}
    return session(network, strategy=strategy, **more)


def by_hand(
    one: Session, workers: int, folder: Path, *, behind: bool
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """All workers' parameters in the end, and each one's own: Douillard et al. 2025, algorithm 2.

    behind: a fragment is taken over a part of the period after it left.
    """
    everyone = [made(0, 1, one, folder) for _ in range(workers)]
    own = [dict(it.flow.module.named_parameters()) for it in everyone]
    rules = [torch.optim.SGD(it.values(), lr=0.1, momentum=0.9) for it in own]
    common = {name: torch.nn.Parameter(value.detach().clone()) for name, value in own[0].items()}
    outer = {name: torch.optim.SGD([it], lr=0.7, momentum=0.9, nesterov=True) for name, it in common.items()}
    alpha, turn, in_part, numbers = one.strategy.consistency.alpha, 0, 0, [0] * workers
    due: dict[str, Tensor] = {}

    @torch.no_grad()
    def arrive() -> None:
        for name, mean in due.items():
            common[name].grad = -mean
            outer[name].step()

    @torch.no_grad()
    def take_over() -> None:
        arrive()
        for it in own:
            for name in due:
                it[name].copy_(alpha * it[name] + (1 - alpha) * common[name])
        due.clear()

    with torch.no_grad():
        for it in own:
            for name, value in it.items():
                value.copy_(common[name])
    for _ in range(STEPS):
        learnt, ends_epoch = step_apart(everyone, rules)
        numbers, in_part = [one + more for one, more in zip(numbers, learnt, strict=True)], in_part + 1
        if in_part < 2 and not ends_epoch:
            continue
        take_over()
        names = [name for name in common if name.rpartition(".")[0] in LAYERS[turn % 2]]
        shares = [count / sum(numbers) for count in numbers]
        for name in names:
            due[name] = sum(share * (it[name] - common[name]).detach() for share, it in zip(shares, own, strict=True))
        if not behind:
            take_over()
        turn, in_part, numbers = turn + 1, 0, [0] * workers
    arrive()
    return _values(common), [_values(it) for it in own]


def eager_by_hand(one: Session, workers: int, folder: Path) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The mean of what workers take all to have in the end, and each one's own: Kale et al. 2025, algorithm 2."""
    everyone = [made(0, 1, one, folder) for _ in range(workers)]
    own = [dict(it.flow.module.named_parameters()) for it in everyone]
    rules = [torch.optim.SGD(it.values(), lr=0.1, momentum=0.9) for it in own]
    since = [{name: torch.nn.Parameter(it.detach().clone()) for name, it in own[0].items()} for _ in own]
    outer = [
        {name: torch.optim.SGD([it], lr=0.7, momentum=0.9, nesterov=True) for name, it in each.items()}
        for each in since
    ]
    before: dict[str, list[Tensor]] = {name: [torch.zeros_like(it)] * workers for name, it in own[0].items()}
    turn, in_part, numbers = 0, 0, [0] * workers
    with torch.no_grad():
        for it in own:
            for name, value in it.items():
                value.copy_(since[0][name])
    for _ in range(STEPS):
        learnt, ends_epoch = step_apart(everyone, rules)
        numbers, in_part = [one + more for one, more in zip(numbers, learnt, strict=True)], in_part + 1
        if in_part < 2 and not ends_epoch:
            continue
        for name in [name for name in own[0] if name.rpartition(".")[0] in LAYERS[turn % 2]]:
            shares = [count / sum(numbers) for count in numbers]
            parts = [
                share * (it[name] - each[name]).detach() for share, it, each in zip(shares, own, since, strict=True)
            ]
            for rank, part in enumerate(parts):
                since[rank][name].grad = -(sum(before[name]) - before[name][rank] + part)
                outer[rank][name].step()
                with torch.no_grad():
                    own[rank][name].copy_(since[rank][name])
            before[name] = parts
        turn, in_part, numbers = turn + 1, 0, [0] * workers
    common = {name: sum(each[name].detach() for each in since) / workers for name in own[0]}
    return common, [_values(it) for it in own]


def _values(of: dict[str, torch.nn.Parameter]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in of.items()}


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "before the next step": (STREAMING, OVERLAPPED),
    "under the next steps": (STREAMING | {"alpha": ALPHA}, BEHIND),
    "eager": (EAGER, BEHIND),
}


def train_cases(rank: int, world_size: int) -> dict[str, Trained]:
    return {name: trained(rank, world_size, streaming(*case), name, disk=Quick()) for name, case in CASES.items()}


def saved(folder: Path) -> dict[str, Tensor]:
    checkpoints = Checkpoints(folder)
    weights = SavedWeights(checkpoints.path(STEPS), checkpoints.manifest(STEPS))
    return {one: weights.whole(one) for one in weights}


def test_fragments_are_exchanged_in_turn_as_one_does_by_hand_and_what_all_have_is_saved(workers, tmp_path):
    everyone = workers(3, train_cases)
    for name, case in CASES.items():
        one = streaming(*case)
        eager = name == "eager"
        common, own = eager_by_hand(one, 3, tmp_path) if eager else by_hand(one, 3, tmp_path, behind="under" in name)
        kept = saved(workers.folder / str(workers.calls) / name)
        for parameter, value in common.items():
            torch.testing.assert_close(kept[parameter], value, rtol=0, atol=ROUNDING, msg=f"{name}: {parameter}")
        for found, expected in zip(everyone, own, strict=True):
            assert (found[name].outcome, len(found[name].rows)) == ("finished", STEPS)
            for parameter, value in expected.items():
                torch.testing.assert_close(found[name].parameters[parameter], value, rtol=0, atol=ROUNDING, msg=name)


def resumed_eager(rank: int, world_size: int) -> tuple[Trained, Trained]:
    one = streaming(EAGER, {"codec": "int8", **BEHIND}, checkpoint={"every": "6 steps"})
    whole = trained(rank, world_size, one, "whole", disk=Quick())
    stopped = trained(rank, world_size, one, "stopped", disk=Quick(), until=lambda step: step >= 6)
    return whole, replace(stopped, parameters=trained(rank, world_size, one, "stopped", disk=Quick()).parameters)


def test_a_resumed_eager_run_equals_an_uninterrupted_one_bit_for_bit(workers):
    for whole, again in workers(2, resumed_eager):
        assert again.outcome == "stopped"
        assert all(torch.equal(one, whole.parameters[name]) for name, one in again.parameters.items())


def test_more_fragments_than_layers_are_refused_before_anything_starts():
    one = streaming({"name": "local", "period": 5, "fragments": 5}, OVERLAPPED | {"workers": 2})
    with pytest.raises(SettingError, match=r"fragments is 5, and the network has 4 layers with .* accepted: 1 to 4"):
        check_session(one)


def resumed(rank: int, world_size: int) -> tuple[list[int], Trained, Trained]:
    """The most bytes of a step with so many fragments; a run in one piece, and one that was stopped and resumed."""
    with pytest.raises(SettingError, match=r"fragments is 5, and the network has 4 layers with .* accepted: 1 to 4"):
        made(rank, world_size, streaming({"name": "local", "period": 5, "fragments": 5}, OVERLAPPED))
    wide = {"of": {"bits": 32, "width": 64}, "train": {"steps": 20}, "checkpoint": {"every": "6 steps"}}
    most = []
    for count in (1, 2):
        one = streaming(
            {"name": "local", "period": 4, "fragments": count}, {"codec": "int8", **OVERLAPPED}, "Wide", **wide
        )
        rows = trained(rank, world_size, one, f"{count}-fragments", disk=Quick()).rows
        most.append(max(row.sent_bytes for row in rows[1:]))
    one = streaming(STREAMING | {"alpha": ALPHA}, {"codec": "int8", **BEHIND}, "Wide", **wide)
    found = trained(rank, world_size, one, "whole", disk=Quick())
    stopped = trained(rank, world_size, one, "stopped", disk=Quick(), until=lambda step: step >= 6)
    assert stopped.outcome == "stopped"
    again = trained(rank, world_size, one, "stopped", disk=Quick())
    return most, found, replace(again, rows=[*stopped.rows, *again.rows])


@pytest.mark.slow  # fragments in turn come above
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit_and_each_exchange_is_of_a_fragment(workers):
    for (whole_network, fragment), whole, again in workers(2, resumed):
        assert again.outcome == "finished"
        assert all(torch.equal(one, whole.parameters[name]) for name, one in again.parameters.items())
        assert again.losses == whole.losses
        assert 0 < fragment < 0.55 * whole_network, "each has about half of the parameters"


def own_loop(rank: int, world_size: int) -> list[list[float]]:
    """The two parameters of a worker's network after each of four steps, in a loop of one's own."""
    consistency = {"name": "local", "period": 2, "fragments": 2, "alpha": ALPHA}
    script = Script(program="mine.py", strategy={"workers": world_size, "consistency": consistency})
    worker = worker_in(script, joined(0), Recorder(rank), SimpleNamespace(asked_to_end=False))
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1, bias=False) for _ in range(2))).double()
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    model, rule = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05))
    found = []
    for _ in range(4):
        rule.zero_grad()
        (model(torch.full((1, 1), rank + 1.0, dtype=torch.float64)) - 3).square().sum().backward()
        rule.step()
        found.append([parameter.item() for parameter in model.parameters()])
    worker.close()
    return found


@pytest.mark.slow  # what is exchanged is shown above, and how loops of one's own do it in tests/train/test_elastic.py
def test_in_a_loop_of_ones_own_one_fragment_after_the_other_is_exchanged(workers):
    everyone, common = workers(2, own_loop), [1.0, 1.0]
    own = [[1.0, 1.0], [1.0, 1.0]]
    for step in range(4):
        for r, it in enumerate(own, 1):
            a, b = it
            slope = 0.05 * 2 * (a * b * r - 3) * r
            it[:] = a - slope * b, b - slope * a
        turn = step % 2
        common[turn] = sum(it[turn] for it in own) / 2
        for it in own:
            it[turn] = ALPHA * it[turn] + (1 - ALPHA) * common[turn]
        for found, it in zip(everyone, own, strict=True):
            assert found[step] == pytest.approx(it, rel=1e-12)


def test_no_average_is_kept_of_what_each_worker_takes_all_to_have():
    with pytest.raises((SessionError, SettingError), match=r"average is ema, and with consistency\.eager each worker"):
        streaming(EAGER, {"workers": 2, **BEHIND}, train={"steps": STEPS, "average": "ema"})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"fragments": 3},
            "fragments: is 3, which are exchanged one after the other in a period; accepted: with a per",
        ),
        ({"fragments": 0}, "fragments: is 0; accepted: 1 up to the number of layers"),
        ({"fragments": 2, "doubles": 9, "most": 8}, "fragments: is 2, which are exchanged one after the other"),
        ({"alpha": 0.5}, "alpha: is 0.5, which is of fragments; accepted: 0, or 2 fragments or more"),
        ({"eager": True}, "eager: is true, which is of fragments; accepted: false, or 2 fragments or more"),
        ({"fragments": 2, "eager": True, "alpha": 0.5}, "alpha: is 0.5, and with eager a worker takes a fragment over"),
        ({"fragments": 2, "eager": True}, "eager: is true, which counts a worker's changes before those of others are"),
        ({"fragments": 2, "alpha": 1.0}, "alpha: is 1; accepted: from 0 to below 1"),
    ],
)
def test_what_does_not_go_together_is_refused(settings, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        streaming({"name": "local", "period": 4, **settings}, {"workers": 2})
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (
            {"exchange": "server"},
            "strategy.consistency.fragments: is 2, and with exchange=server an update is of all parameters: what "
            "workers read, and what is saved, is of one; accepted: exchange=allreduce, or fragments=1",
        ),
        (
            {"partition": {"name": "mesh", "axes": {"data": 2, "tensor": 2}}},
            "and with consistency.fragments=2 each worker updates all parameters; accepted: fragments=1, or partition=",
        ),
        ({"codec": "auto"}, "and with consistency.fragments=2 what travels is planned once; accepted: a codec that"),
    ],
)
def test_what_fragments_do_not_go_with_names_them(strategy, sentence):
    with pytest.raises((SessionError, SettingError)) as refused:
        streaming({"name": "local", "period": 4, "fragments": 2}, {"workers": 4, **strategy})
    assert sentence in str(refused.value)
