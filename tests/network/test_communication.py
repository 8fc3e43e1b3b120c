"""Layers that communicate: results and gradients are one process's, whatever the shapes and whoever takes part."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from _workers import alone, joined
from train._own_workers import worker_in
from volary.comm.groups.tensor_messages import TensorMessages
from volary.errors import BadInput, RanksDiffer
from volary.network.blocks.communication import AllToAll, Broadcast, Gather, OnWorkers, Receive, Reduce, Send
from volary.session.script import Script
from volary.train.recording.recorder import Recorder

WORKERS = 3
CPU = torch.device("cpu")
COLLECTIVES = ("broadcast", "gather", "reduce", "all_to_all")


def channel() -> TensorMessages:
    return TensorMessages(joined(), CPU)


def values(seed: int, rank: int, shape: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def weights_of(out: Tensor, seed: int, rank: int) -> Tensor:
    """The weight of each value of a result in its worker's loss, which is not linear in them."""
    return values(seed + 50, rank, tuple(out.shape))


def together(kind: str, on: list[int], root: int, xs: dict[int, Tensor]) -> dict[int, Tensor]:
    """The output of each worker's layer, by the definition, in one process."""
    if kind == "broadcast":
        return dict.fromkeys(on, xs[root] * 1)
    if kind == "gather":
        return {root: torch.cat([xs[rank] for rank in on])}
    if kind == "reduce":
        return {root: torch.stack([xs[rank] for rank in on]).sum(0)}
    parts = {rank: xs[rank].tensor_split(len(on)) for rank in on}
    return {rank: torch.cat([parts[other][place] for other in on]) for place, rank in enumerate(on)}


def layer(kind: str, passing: TensorMessages, on: list[int], root: int) -> nn.Module:
    if kind == "all_to_all":
        return AllToAll(passing, on)
    made = {"broadcast": Broadcast, "gather": Gather, "reduce": Reduce}[kind]
    return made(passing, root, on)


def one_case(passing: TensorMessages, rank: int, case: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """This worker's result and its input's gradient; None beyond the group."""
    kind, on, root, seed = case["kind"], case["on"], case["root"], case["seed"]
    x = values(seed, rank, case["shapes"][rank]).requires_grad_()
    out = layer(kind, passing, on, root)(x)
    if rank not in on:
        assert out is x
        return None
    gives = kind in ("broadcast", "all_to_all") or rank == root
    loss = (out.tanh() * weights_of(out, seed, rank)).sum() if gives else out
    if loss.requires_grad:
        loss.backward()
    return out.detach(), torch.zeros_like(x) if x.grad is None else x.grad


def all_cases(rank: int, world_size: int, cases: list[dict[str, Any]]) -> list[tuple[Tensor, Tensor] | None]:
    passing = channel()
    return [one_case(passing, rank, case) for case in cases]


@st.composite
def a_case(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(COLLECTIVES))
    on = draw(st.permutations(range(WORKERS)))[: draw(st.integers(1, WORKERS))]
    row = draw(st.lists(st.integers(0, 3), max_size=3))
    one = draw(st.integers(0, 5))
    rows = [draw(st.integers(0, 5)) if kind in ("gather", "all_to_all") else one for _ in range(WORKERS)]
    return {
        "kind": kind,
        "on": list(on),
        "root": draw(st.sampled_from(on)),
        "seed": draw(st.integers(0, 40)),
        "shapes": [(count, *row) for count in rows],
    }


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases=st.lists(a_case(), min_size=40, max_size=40))
def test_any_shape_and_group_gives_one_process_s_results_and_gradients_also_of_empty_parts(workers, cases):
    found = workers(WORKERS, all_cases, cases)
    for number, case in enumerate(cases):
        on, seed = case["on"], case["seed"]
        xs = {rank: values(seed, rank, case["shapes"][rank]).requires_grad_() for rank in on}
        expected = together(case["kind"], on, case["root"], xs)
        loss = sum((out.tanh() * weights_of(out, seed, rank)).sum() for rank, out in expected.items())
        loss.backward()
        for rank in range(WORKERS):
            if rank not in on:
                assert found[rank][number] is None
                continue
            out, gradient = found[rank][number]
            if rank in expected:
                torch.testing.assert_close(out, expected[rank].detach(), rtol=0, atol=1e-14)
            else:
                assert out.shape == () and out == 0
            own = xs[rank].grad
            wanted = torch.zeros_like(xs[rank]) if own is None else own
            torch.testing.assert_close(gradient, wanted, rtol=0, atol=1e-14)


def slopes(rank: int, world_size: int) -> list[list[float]]:
    """Slopes of each kind: by backward, and by differences, of the sum of losses by one value of worker 1."""
    passing, found = channel(), []
    for kind in COLLECTIVES:

        def loss_of(nudge: float, kind: str = kind) -> tuple[Tensor, Tensor]:
            x = values(7, rank, (4, 2))
            x[2, 1] += nudge * (rank == 1)
            x.requires_grad_()
            out = layer(kind, passing, [0, 1, 2], 1)(x)
            return x, (out.sin() * out).sum()

        x, loss = loss_of(0.0)
        loss.backward()
        sums = []
        for nudge in (1e-6, -1e-6):
            with torch.no_grad():
                sums.append(float(sum(joined().bulletin.share(f"{kind} {nudge}", float(loss_of(nudge)[1])))))
        if x.grad is not None:  # of a broadcast the others' values count for nothing
            found.append([float(x.grad[2, 1]), (sums[0] - sums[1]) / 2e-6])
    return found


def test_gradients_are_those_of_finite_differences(workers):
    found = workers(WORKERS, slopes)[1]
    assert len(found) == len(COLLECTIVES)
    for by_backward, by_differences in found:
        assert by_backward != 0 and by_backward == pytest.approx(by_differences, abs=1e-8)


def chained(rank: int, world_size: int) -> dict[str, Tensor]:
    """Two parts on two workers: there, back, and there again; the loss on the second."""
    passing = channel()
    first, second, third, x, target = pieces()
    if rank == 0:
        tie = Send(passing, 1)(first(x))
        (tie + Send(passing, 1)(third(Receive(passing, 1)()))).backward()
        return {f"first.{name}": one.grad for name, one in first.named_parameters()} | {
            f"third.{name}": one.grad for name, one in third.named_parameters()
        }
    tie = Send(passing, 0)(second(Receive(passing, 0)()))
    (((Receive(passing, 0)() - target) ** 2).mean() + tie).backward()
    return {f"second.{name}": one.grad for name, one in second.named_parameters()}


def pieces() -> tuple[nn.Module, nn.Module, nn.Module, Tensor, Tensor]:
    torch.manual_seed(3)
    first, second, third = (nn.Sequential(nn.Linear(5, 5), nn.ReLU(inplace=True)).double() for _ in range(3))
    return first, second, third, torch.randn(4, 5).double(), torch.randn(4, 5).double()


def test_what_is_sent_to_and_fro_has_the_gradients_of_a_chain_in_one_process(workers):
    found = workers(2, chained)
    first, second, third, x, target = pieces()
    ((third(second(first(x))) - target) ** 2).mean().backward()
    expected = {
        f"{name}.{own}": one.grad
        for name, part in (("first", first), ("second", second), ("third", third))
        for own, one in part.named_parameters()
    }
    assert {**found[0], **found[1]}.keys() == expected.keys()
    for name, gradient in {**found[0], **found[1]}.items():
        torch.testing.assert_close(gradient, expected[name], rtol=0, atol=1e-15)


class Ensemble(nn.Module):
    """A trunk on worker 0; branches on workers 0 and 2 alone; their mean, classified on worker 0."""

    def __init__(self, passing: Any, rank: int) -> None:
        super().__init__()
        self.steps = nn.Sequential(
            OnWorkers(passing, lambda: part(1, 6, 8), on=[0]),
            Broadcast(passing, root=0, on=[0, 2]),
            nn.ReLU(inplace=True),
            OnWorkers(passing, lambda: part(2 + rank, 8, 4), on=[0, 2]),
            Reduce(passing, root=0, on=[0, 2]),
            OnWorkers(passing, lambda: part(9, 4, 3), on=[0]),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.steps(x)
        return out


def part(seed: int, rows: int, columns: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Linear(rows, columns).double()


def train_ensemble(rank: int, world_size: int) -> tuple[list[float], list[str]]:
    net = Ensemble(channel(), rank)
    losses = []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) if list(net.parameters()) else None
    for step in range(20):
        out = net(values(step, 0, (5, 6)))
        loss = nn.functional.cross_entropy(out, torch.arange(5) % 3) if rank == 0 else out.sum()
        losses.append(loss.item())
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return losses, [name for name, _ in net.named_parameters()]


def test_a_branch_lives_on_some_workers_only_and_the_whole_trains_as_in_one_process(workers):
    found = workers(WORKERS, train_ensemble)
    trunk, one, other, head = part(1, 6, 8), part(2, 8, 4), part(4, 8, 4), part(9, 4, 3)
    whole = nn.ModuleList([trunk, one, other, head])
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1, momentum=0.9)
    for step, loss in enumerate(found[0][0]):
        hidden = trunk(values(step, 0, (5, 6))).relu()
        expected = nn.functional.cross_entropy(head(one(hidden) + other(hidden)), torch.arange(5) % 3)
        assert loss == pytest.approx(expected.item(), abs=1e-12)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
    assert [len(names) for _, names in found] == [6, 0, 2], "worker 1 has none of it, worker 2 its branch"


def learn_exchanging(rank: int, world_size: int) -> list[Tensor]:
    """A loop of a user's own, whose shared network passes rows on to other workers in its middle."""
    group = joined() if world_size > 1 else alone()
    script = Script(function="x.py:f", strategy={"workers": world_size})
    worker = worker_in(script, group, Recorder(rank), SimpleNamespace(asked_to_end=False))
    try:
        net = nn.Sequential(part(1, 6, 8), nn.ReLU(inplace=True), AllToAll(worker.channel()), part(2, 8, 1))
        assert worker.channel() is worker.channel()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net, optimizer = worker.distribute(net, optimizer)
        for step in range(5):
            own = torch.cat([values(step, of, (4, 6)) for of in range(4)]).chunk(world_size)[rank]
            optimizer.zero_grad()
            (net(own) ** 2).mean().backward()
            optimizer.step()
        return [one.detach() for one in net.parameters()]
    finally:
        worker.close()


def test_a_network_that_a_loop_of_one_s_own_shares_may_communicate_within(workers):
    (whole,) = workers(1, learn_exchanging)
    for found in workers(2, learn_exchanging):
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda one: Broadcast(one, root=0, on=[0, 0]), r"on is \[0, 0\]; accepted: different workers from 0 to 0"),
        (lambda one: Gather(one, root=0, on=[]), r"on is \[\]; accepted"),
        (lambda one: Reduce(one, root=1), "root is 1; accepted: a worker of the group, 0"),
        (lambda one: AllToAll(one, on=[0, 2]), r"on is \[0, 2\]; accepted"),
        (lambda one: OnWorkers(one, nn.Identity, on=[4]), r"on is \[4\]; accepted"),
        (lambda one: Send(one, target=0), "worker 0 is to pass tensors with worker 0; accepted: another one"),
        (lambda one: Receive(one, source=7), "with worker 7; accepted: another one"),
    ],
)
def test_a_group_that_cannot_be_is_refused_when_the_layer_is_made(make: Callable[[Any], nn.Module], said: str):
    with pytest.raises(BadInput, match=said):
        make(TensorMessages(alone(), CPU))


def test_a_worker_alone_is_all_the_group_that_there_is():
    one = TensorMessages(alone(), CPU)
    x = torch.randn(3, 2, requires_grad=True)
    net = nn.Sequential(Broadcast(one, root=0), nn.ReLU(inplace=True), Gather(one, root=0), AllToAll(one))
    copy.deepcopy(net)(x).sum().backward()
    torch.testing.assert_close(x.grad, (x > 0).float())


def differing(rank: int, world_size: int) -> str:
    passing = channel()
    try:
        if rank == 0:
            Gather(passing, root=0)(torch.ones(2, 3))
        else:
            Gather(passing, root=0)(torch.ones(2, 4))
    except RanksDiffer as problem:
        return str(problem)
    return ""


def out_of_order(rank: int, world_size: int) -> str:
    passing = channel()
    try:
        if rank == 0:
            Gather(passing, root=0)(torch.ones(2))
        else:
            Reduce(passing, root=0)(torch.ones(2))
    except RanksDiffer as problem:
        return str(problem)
    return ""


def test_shapes_that_differ_and_layers_out_of_order_are_named(workers):
    assert "torch.float32 [3] on worker 0 and torch.float32 [4] on worker 1" in workers(2, differing)[0]
    assert "worker 1 is in Reduce where worker 0 is in Gather" in workers(2, out_of_order)[0]
