"""Factors travel instead of gradients, between real ranks, and what is formed of them is the gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from _workers import alone, joined
from exchange._factored import Factored, gradients
from exchange._ranks import shape
from volary.comm.routes import ROOM as ROUTES
from volary.comm.topology.topology import Topology
from volary.errors import SettingError
from volary.exchange._base import KeeperCallbacks
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.gradients.bucket import Chunk
from volary.exchange.gradients.factor_sums import FactorSums
from volary.exchange.gradients.plan import BucketPlan, in_memory_order
from volary.exchange.overlap.comm_thread import Parcel
from volary.exchange.overlap.mixed_routes import MixedRoutes
from volary.exchange.overlap.overlapped import OverlappedKeeper
from volary.exchange.representations.factors import Factors
from volary.run.database.traffic import totals

WORDS, WIDE = 11, 6
LAYERS = ["table", "conv", "twice", "plain"]
SIZES = [[3, 2, 1], [1, 0, 4], [2, 2, 0], [0, 5, 2], [2, 1, 1]]  # of each rank's batch, step by step


class Net(nn.Module):
    """Every kind of layer that can send factors, one of them used twice, and one parameter that cannot."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, 2 * WIDE, padding_idx=0)
        self.conv = nn.Conv2d(2, 3, 1)
        self.twice = nn.Linear(3 * WIDE, 3 * WIDE)
        self.plain = nn.Linear(3 * WIDE, 2, bias=False)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, words: Tensor) -> Tensor:
        seen = self.table(words).view(-1, 2, words.shape[1], WIDE)
        hidden = torch.tanh(self.conv(seen)).mean(2).flatten(1)
        return self.scale * self.plain(self.twice(torch.tanh(self.twice(hidden))))


def batch(step: int, rank: int, pass_: int) -> Tensor:
    """(samples, 4) words, some of them the same, some padding."""
    drawn = torch.Generator().manual_seed(100 * step + 10 * rank + pass_)
    return torch.randint(0, WORDS, (SIZES[step][rank], 4), generator=drawn)


def backward(module: nn.Module, words: Tensor, step: int, factor: float = 1.0) -> None:
    """Without samples: in turn no backward at all, a loss of nothing, or layers without a row."""
    if len(words) or step % 3 == 2:
        (module(words).square().sum() * factor).backward()
    elif step % 3 == 1:
        torch.stack([p[:0].sum() for p in module.parameters()]).sum().backward()


def trained(rank: int, world_size: int) -> list[tuple[dict[str, Tensor], int, int]]:
    """The gradients of each step, and bytes: as counted, and of as many rows as now or the last time, if more.

    Half the steps' weight is not 1.
    """
    results = []
    for passes, weight in ((1, 1.0), (2, 0.5)):
        factored = Factored(Net().double(), LAYERS, joined(), passes=passes, weight=lambda w=weight: w)
        assert len(factored.changed) == len(LAYERS)
        before_bytes = [0] * len(LAYERS)
        for step in range(len(SIZES)):
            before = totals(factored.route.traffic)[0]
            # on some ranks a forward that no backward comes to: there factors leave later than elsewhere
            held = factored.module(batch(step, 0, 0)) if (step + rank) % 2 else None
            for pass_ in range(passes):
                backward(factored.module, batch(step, rank, pass_), step)
            found = factored.gradients()
            del held
            widths = [bucket.payload.width for bucket in factored.buckets.all if bucket.payload is not None]
            own_bytes = [8 * width * factored.route._arrived[number, rank] for number, width in enumerate(widths)]
            most_bytes = sum(map(max, own_bytes, before_bytes))
            results.append((found, totals(factored.route.traffic)[0] - before, (world_size - 1) * most_bytes))
            before_bytes = own_bytes
    return results


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_gradients_equal_one_device_s_in_64_bits_and_are_the_same_bits_on_all_ranks(workers, n):
    ranks = workers(n, trained)
    turn = 0
    for passes, weight in ((1, 1.0), (2, 0.5)):
        for step in range(len(SIZES)):
            alone = Net().double()
            for rank in range(n):
                for pass_ in range(passes):
                    backward(alone, batch(step, rank, pass_), step, weight)
            wanted = gradients(alone)
            first, *_ = ranks[0][turn]
            torch.testing.assert_close(first, wanted, rtol=1e-10, atol=1e-12)
            for found, _, _ in ranks_at(ranks[1:], turn):
                assert found.keys() == first.keys()
                assert all(torch.equal(found[name], first[name]) for name in found)
            for _, sent, rows_bytes in ranks_at(ranks, turn):
                assert sent == rows_bytes + len(LAYERS) * 8 * (n - 1), "rows and their number"
            turn += 1


def ranks_at(ranks: list[Any], turn: int) -> list[Any]:
    return [one[turn] for one in ranks]


def users(rank: int, world_size: int) -> list[list[int]]:
    factored, seen = Factored(nn.Sequential(nn.Linear(3, 4)), ["0"], joined()), []
    for who in ([0, 1, 2], [1], []):
        if rank in who:
            factored.module(torch.ones(2, 3)).sum().backward()
        missing = factored.agree()
        assert bool(missing) == (rank not in who)
        assert (factored.module[0].weight.grad is None) == (not who), "what no rank used is left alone"
        seen.append([slot.users for slot in factored.buckets.slots])
        factored.module.zero_grad()
    return seen


def to_some(rank: int, world_size: int) -> list[Tensor]:
    """One neighbour of two gets this rank's vectors: its error is 1, its input marks the rank."""
    factored, found = Factored(nn.Sequential(nn.Linear(3, 2, bias=False)), ["0"], joined(), neighbours=1), []
    for _ in range(4):
        factored.module(torch.eye(3)[rank : rank + 1]).sum().backward()
        before = totals(factored.route.traffic)[0]
        found.append(factored.gradients()["0.weight"][0])
        assert totals(factored.route.traffic)[0] - before == 8 + 4 * (3 + 2), "a count and a row, to one"
    return found


def beside_compute(rank: int, world_size: int) -> tuple[list[Tensor], bool]:
    """The weights after four steps, updated chunk by chunk as factors come; whether what is formed had one place."""
    factored = Factored(nn.Sequential(*layers()), ["0", "1"], joined())
    topology = Topology((tuple(range(world_size)),), ("here",), ((0,),))
    votes = ROUTES.load("torch")().build(joined(), [shape(1)], topology)
    heads = len(factored.buckets.all)
    exchange = OverlappedKeeper(
        MixedRoutes([(factored.route, range(heads)), (votes, [heads])]), None, ErrorFeedback([]), "", overlaps=True
    )  # type: ignore[arg-type]
    factored.buckets.form_one_by_one()
    for slot in factored.buckets.slots:
        slot.view.fill_(UNTOUCHED)

    def apply(chunk: Chunk) -> None:
        for slot, part, gradient in zip(chunk.slots, chunk.parts, chunk.gradients, strict=True):
            in_memory_order(slot.parameter.detach())[part.start : part.end].sub_(gradient, alpha=RATE)

    exchange.start(
        KeeperCallbacks(
            chunks=factored.buckets.chunks,
            slots=factored.buckets.slots,
            votes=Parcel(heads, 0, 1),
            votes_first=True,
            voted=lambda: None,
            apply=apply,
            travelled=lambda *_: None,
            applied=lambda *_: None,
        )
    )
    for step in range(4):
        exchange.vote()
        factored.module(rows_of(step, rank)).square().sum().backward()
        assert factored.buckets.close() == []
        for number in factored.left:
            exchange.push(number)
        factored.left.clear()
        exchange.release(step + 1)
        exchange.settle()
    exchange.close()
    untouched = all(bool((slot.agreed == UNTOUCHED).all()) for slot in factored.buckets.slots)
    return [parameter.detach() for parameter in factored.module.parameters()], untouched


RATE = 1e-3
UNTOUCHED = 123.0


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(300, 1000), nn.Linear(1000, 20)]  # of the first, two row blocks


def rows_of(step: int, rank: int) -> Tensor:
    return torch.randn(2, 300, generator=torch.Generator().manual_seed(10 * step + rank))


def both(rank: int, world_size: int) -> Any:
    return users(rank, world_size), to_some(rank, world_size), beside_compute(rank, world_size)


def test_users_are_counted_neighbours_take_turns_and_updates_run_chunk_by_chunk_as_factors_come(workers):
    counted, heard, after = zip(*workers(3, both), strict=True)
    assert list(counted) == [[[3, 3], [1, 1], [0, 0]]] * 3
    for step in range(4):
        alone = [one[step] for one in heard]
        assert all(values.count_nonzero() == 2 for values in alone), "its own, and one other's"
        torch.testing.assert_close(sum(alone) / 3, torch.ones(3), msg="the mean over ranks is the sum")
    for rank, steps in enumerate(heard):
        assert {tuple(values.tolist()) for values in steps[:2]} == {
            tuple(1.5 * (other in (rank, third)) for other in range(3)) for third in range(3) if third != rank
        }, "all pairs meet"
        assert torch.equal(steps[0], steps[2])
    alone = nn.Sequential(*layers())
    rule = torch.optim.SGD(alone.parameters(), lr=RATE)
    for step in range(4):
        rule.zero_grad()
        alone(torch.cat([rows_of(step, rank) for rank in range(3)])).square().sum().backward()
        rule.step()
    for weights, untouched in after:
        torch.testing.assert_close(weights, list(alone.parameters()))
        assert all(torch.equal(mine, first) for mine, first in zip(weights, after[0][0], strict=True))
        assert untouched, "no memory but the chunk's is written"


def test_factors_of_a_step_that_is_forgotten_do_not_leave_with_the_next_one():
    module = nn.Sequential(nn.Linear(3, 2))
    factored = Factored(module, ["0"])
    inputs = torch.ones(4, 3)
    (2 * module(inputs)).sum().backward()
    factored.buckets.forget()
    module(inputs).sum().backward()
    torch.testing.assert_close(factored.gradients()["0.weight"], torch.full((2, 3), 4.0))


def test_a_type_whose_bits_hold_no_index_is_refused():
    weight = nn.Parameter(torch.zeros(4, 4, dtype=torch.bfloat16))
    plan = BucketPlan([("0.weight", weight)], torch.bfloat16, torch.device("cpu"), Factors())
    with pytest.raises(SettingError, match=r"0.weight is bfloat16 .* accepted: float32, float64"):
        FactorSums(alone(), [plan], [None])
