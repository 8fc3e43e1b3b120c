"""All workers write the state that they have alike, a share each, and any number of workers reads it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from _workers import alone, joined
from train._own_loops import points
from train._own_workers import worker_in
from train._training import Quick, session, trained
from train.test_keeping import Killed, drafts
from volary.run.checkpoints import Checkpoints
from volary.session.script import Script
from volary.sharding.ranges import Range
from volary.train.own.saving.divided_states import rest, shares
from volary.train.recording.recorder import Recorder
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import PartState


def state_of(sizes: list[int], bare: int) -> OptimizerState:
    """Adam's state of parameters of these sizes, and of as many of which there is nothing but a count."""
    parts = [
        PartState(
            Range(f"p{number}", 0, size),
            {"exp_avg": torch.arange(float(size)), "exp_avg_sq": torch.arange(float(size)).double()},
            {"step": torch.tensor(3.0)},
        )
        for number, size in enumerate(sizes)
    ]
    return OptimizerState([*parts, *(PartState(Range(f"b{n}", 0, 5), {}, {"seen": n}) for n in range(bare))])


@given(some.lists(some.integers(0, 300), max_size=5), some.integers(0, 2), some.integers(1, 5), some.integers(0, 5000))
def test_shares_are_all_of_it_once_and_about_as_many_bytes(sizes, bare, ranks, first):
    whole = state_of(sizes, bare)
    shares = [whole.share(rank, ranks, first).plain() for rank in range(ranks)]
    again = OptimizerState.from_plain(part for share in shares for part in share)
    for number, size in enumerate(sizes):
        part = again.of(Range(f"p{number}", 0, size))
        assert part.whole == {"step": torch.tensor(3.0)}
        assert torch.equal(part.each["exp_avg"], torch.arange(float(size)))
        assert torch.equal(part.each["exp_avg_sq"], torch.arange(float(size)).double())
    assert [again.of(Range(f"b{n}", 0, 5)).whole for n in range(bare)] == [{"seen": n} for n in range(bare)]
    tensors = [entry for share in shares for _, _, _, each, *_ in share for entry in each.values()]
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in tensors if one.numel())
    written = [12 * sum(end - start for name, start, end, *_ in share if name[0] == "p") for share in shares]
    assert sum(written) == 12 * sum(sizes)
    even = (first + sum(written)) / ranks
    if ranks > 1 and first > even:  # more than its share without any of this
        wanted = [0.0, *[sum(written) / (ranks - 1)] * (ranks - 1)]
    else:
        wanted = [even - first, *[even] * (ranks - 1)]
    assert all(abs(one - other) <= 12 for one, other in zip(written, wanted, strict=True))


def of_two(rank: int, size: int) -> Any:
    one = session("Deep", strategy={"workers": size}, optimizer={"name": "adam", "lr": 0.02}, train={"steps": 6})
    trained(rank, size, one, "it", disk=Quick(), until=lambda step: step >= 3)
    resumed = trained(rank, size, one, "it", disk=Quick()).parameters
    whole = trained(rank, size, one, "whole", disk=Quick()).parameters
    sizes = {file.name: file.stat().st_size for file in Checkpoints(Path("it").absolute()).path(6).iterdir()}
    return whole, resumed, sizes


def test_two_workers_write_as_much_as_each_other_and_resume_bit_for_bit(workers):
    for whole, resumed, sizes in workers(2, of_two):
        assert all(torch.equal(one, resumed[name]) for name, one in whole.items())
        assert "optimizer.pt" not in sizes
        first, second = sizes["optimizer-worker-0.pt"], sizes["optimizer-worker-1.pt"]
        assert 0 < first < second  # the first writes the weights, too


@given(some.lists(some.integers(0, 40), max_size=6), some.integers(1, 4), some.integers(0, 400))
def test_workers_of_a_loop_share_the_tensors_of_its_optimisers(sizes, ranks, first):
    states: dict[str, dict[int, Any]] = {"one": {}, "other": {}}
    for number, size in enumerate(sizes):
        entry = {"exp_avg": torch.arange(float(size)), "step": torch.tensor(3.0), "betas": (0.9, 0.99)}
        states["one" if number % 2 else "other"][number] = entry
    states["other"][77] = "a text"
    found = shares(states, ranks, first)
    kept = [{**one} for one in map(rest, states.values())]
    for share in found:
        for name, entries in share.items():
            for number, large in entries.items():
                assert all(one is states[name][number][key] for key, one in large.items())
                kept[("one", "other").index(name)][number] = {**states[name][number]}
    assert kept == [*states.values()]
    written = [
        sum(4 * len(one["exp_avg"]) for entries in share.values() for one in entries.values()) for share in found
    ]
    assert max(written[1:], default=0) <= min(first + written[0], *written[1:], 4000) + 160


def of_a_loop(group: Any, die: int = -1, folder: str = "../it") -> Any:
    """Eight steps of two models, the first one's optimiser with two groups; saved after each fourth step."""
    script, recorder = Script(program="mine.py", strategy={"workers": group.size}), Recorder(group.rank)
    worker = worker_in(script, group, recorder, SimpleNamespace(asked_to_end=False), drafts(Path(folder), recorder))
    torch.manual_seed(1)
    body, head = nn.Linear(5, 64).double(), nn.Linear(64, 3).double()
    groups: list[dict[str, Any]] = [{"params": [body.weight]}, {"params": [body.bias], "lr": 0.1}]
    of_body, of_head = torch.optim.Adam(groups, lr=0.05, amsgrad=True), torch.optim.SGD(head.parameters(), momentum=0.9)
    worker.distribute(body, head, of_body, of_head)
    kept = {"body": body, "head": head, "of_body": of_body, "of_head": of_head}
    steps = worker.restore(**kept, steps=0)["steps"]
    try:
        for _ in worker.epochs(2):
            for inputs, targets in worker.feed(points(16), batch_size=4, shuffle=False):
                cross_entropy(head(body(inputs)), targets).backward()
                for one in (of_body, of_head):
                    one.step()
                    one.zero_grad()
                steps += 1
                if steps == die:
                    raise Killed
                if steps % 4 == 0:
                    worker.save(**kept, steps=steps)
        return [*body.state_dict().values(), *head.state_dict().values(), *remembered(of_body), *remembered(of_head)]
    except Killed:
        return None
    finally:
        worker.finish()
        worker.close()


def remembered(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [one.clone() for entry in optimizer.state_dict()["state"].values() for _, one in sorted(entry.items())]


def of_two_in_a_loop(rank: int, size: int) -> Any:
    whole = of_a_loop(joined(0), folder="../whole")
    of_a_loop(joined(1), die=6)
    folder = Checkpoints(Path("../it").absolute()).path(4)
    sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
    of_a_loop(joined(2), die=6, folder="../half")
    return whole, of_a_loop(joined(3)), sizes, str(Path("../half").absolute())


def test_workers_of_a_loop_write_a_share_each_and_any_number_resumes_from_them(workers, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = workers(2, of_two_in_a_loop)
    for whole, resumed, sizes, _ in found:
        assert all(torch.equal(one, other) for one, other in zip(whole, resumed, strict=True))
        shared = [sizes[f"state-worker-{rank}.pt"] for rank in (0, 1)]
        assert max(shared) < 2 * min(shared)
    whole, *_, half = found[0]
    by_one = of_a_loop(alone(), folder=half)
    torch.testing.assert_close(by_one, whole, rtol=0, atol=1e-12)
