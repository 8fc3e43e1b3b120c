"""Every keeper of parameters, replicated and on servers, by the verbs that all have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from exchange.test_served import SLICES, Learner, learning, update
from server.test_host import SIZE, Serving, serving
from volary.comm.routes._base import BufferShape
from volary.exchange import ROOM
from volary.exchange._base import Keeper, KeeperCallbacks
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.gradients.bucket import Chunk
from volary.exchange.gradients.buckets import Buckets
from volary.exchange.gradients.plan import BucketPlan
from volary.exchange.overlap.comm_thread import Parcel
from volary.exchange.overlap.delayed import DelayedKeeper


class Kept:
    """A keeper, and what a worker of it contributes: the same again and again. late: steps until that is applied."""

    def __init__(
        self,
        keeper: Keeper,
        gates: list[Any],
        gradients: list[torch.Tensor],
        values: Callable[[], list[torch.Tensor]],
        *,
        late: int = 0,
        fill: Callable[[], None] = lambda: None,
        before: Callable[[int], None] = lambda number: None,
        update: Callable[[int], None] = lambda number: None,
        after: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.keeper, self.gates, self.gradients, self.values = keeper, gates, gradients, values
        self.late, self._fill, self._before, self._update, self._after = late, fill, before, update, after
        self.steps = 0

    def contribute(self) -> None:
        """One update more."""
        self._before(self.steps)
        self._fill()
        for chunk in range(len(self.gradients)):
            self.keeper.push(chunk)
        self.steps += 1
        self._update(self.steps)
        self.keeper.release(self.steps)
        self._after(self.steps)

    def read(self) -> list[torch.Tensor]:
        for gate in self.gates:
            self.keeper.pull(gate)
        return [values.clone() for values in self.values()]


def replicated(route: str, *, behind: bool = False) -> Iterator[Kept]:
    """Parameters are the sums of what two workers contribute."""
    device, group = torch.device("cpu"), joined()
    named = [(f"p{number}", nn.Parameter(torch.zeros(SIZE))) for number in range(3)]
    plans = [BucketPlan([one], torch.float32, device) for one in named]
    ground, votes = ROOM.load("allreduce")(route=route).ground(group), BufferShape(1, torch.float32, device)
    keeper = ground.build(group, plans, votes, ErrorFeedback(plans))
    keeper = DelayedKeeper(keeper) if behind else keeper
    buckets = Buckets(plans, keeper.memory[:-1], chunk_mb=25, private=False)
    slots = buckets.slots

    def apply(chunk: Chunk) -> None:
        for slot in chunk.slots:
            slot.parameter.data.add_(slot.agreed)

    def fill() -> None:
        buckets.fill(lambda slot: slot.view.copy_(torch.arange(SIZE)))
        keeper.vote()

    def read() -> list[torch.Tensor]:
        return [slot.parameter.detach() for slot in slots]

    def at_once(_: int) -> None:
        if not keeper.overlaps:
            for chunk in buckets.chunks:
                apply(chunk)

    keeper.start(
        KeeperCallbacks(
            chunks=buckets.chunks,
            slots=slots,
            votes=Parcel(len(plans), 0, 1),
            votes_first=True,
            heard=lambda: None,
            apply=apply if keeper.overlaps else None,
            travelled=lambda *_: None,
            applied=lambda *_: None,
        )
    )
    gates, memory = [slot.gate for slot in slots], [slot.view for slot in slots]
    yield Kept(keeper, gates, memory, read, late=behind, fill=fill, after=at_once)
    keeper.close()


@contextmanager
def in_shared_memory() -> Iterator[Kept]:
    yield from replicated("shared")


@contextmanager
def over_a_route() -> Iterator[Kept]:
    yield from replicated("ring")


@contextmanager
def a_step_behind() -> Iterator[Kept]:
    yield from replicated("ring", behind=True)


def applied(server: Serving, number: int, one: Learner) -> None:
    one.exchange.settle()
    update(server, number)


@contextmanager
def on_servers() -> Iterator[Kept]:
    with serving() as server, learning(server) as one:
        memory, gradient = one.gradient, one.gradient.clone()
        yield Kept(
            one.exchange,
            one.gates,
            [memory] * len(SLICES),
            lambda: one.network,
            fill=lambda: memory.copy_(gradient),
            before=lambda clock: one.exchange.begin(clock, clock),
            update=lambda number: applied(server, number, one),
        )


KEEPERS: dict[str, dict[str, Callable[[], AbstractContextManager[Kept]]]] = {
    "allreduce": {"in shared memory": in_shared_memory, "over a route": over_a_route, "a step behind": a_step_behind},
    "server": {"on servers": on_servers},
}
ALL = {name: make for made in KEEPERS.values() for name, make in made.items()}


def test_every_exchange_has_its_keepers_in_this_suite():
    assert sorted(KEEPERS) == ROOM.names()


def read_after_each(rank: int, world_size: int, name: str) -> list[tuple[int, bool]]:
    """After each release how many contributions are read of all parameters, and whether memory was of no matter."""
    found = []
    with ALL[name]() as one:
        for _ in range(3):
            one.contribute()
            one.keeper.settle()
            for values in one.gradients:
                values.fill_(1e9)  # it may be filled anew
            first, *rest = one.read()
            assert all(torch.equal(first, other) for other in rest)
            found.append(first.clone())
        traffic = one.keeper.sent_bytes, one.keeper.received_bytes
        one.keeper.close()
        one.keeper.close()
    once = found[one.late]
    assert once.any()
    counted = [round(float((values / once).nan_to_num().max())) for values in found]
    assert all(torch.allclose(values, once * count) for values, count in zip(found, counted, strict=True))
    return [*counted, traffic[0] > 0, traffic[1] > 0]


@pytest.mark.parametrize("name", ALL)
def test_what_is_read_holds_all_that_was_pushed_before_the_release_whatever_memory_is_filled_with_then(workers, name):
    late, travels = name == "a step behind", name != "in shared memory"
    for found in workers(2, read_after_each, name):
        assert found == [1 - late, 2 - late, 3 - late, travels, travels]
