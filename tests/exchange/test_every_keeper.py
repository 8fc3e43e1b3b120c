"""Every keeper of parameters, replicated, on servers, and sharded among workers, by the verbs that all have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn

from _workers import joined
from exchange.test_served import Learner, learning, update
from server.test_host import SIZE, Serving, serving
from volary.codec import ROOM as CODECS
from volary.comm.sums.partner_means import Partners
from volary.comm.sums.route import BufferShape
from volary.exchange import ROOM
from volary.exchange._base import Keeper, KeeperCallbacks
from volary.exchange.gradients.bucket import Chunk
from volary.exchange.gradients.buckets import Buckets
from volary.exchange.gradients.owned import OwnedValues
from volary.exchange.gradients.plan import BucketPlan, values_in
from volary.exchange.overlap.comm_thread import Parcel
from volary.exchange.overlap.delayed import DelayedKeeper
from volary.exchange.representations import representation_of
from volary.exchange.representations._base import Representation
from volary.exchange.representations.exact import EXACT
from volary.partition import ROOM as PARTITIONS
from volary.run.database.traffic import totals


class Kept:
    """A keeper, and what a worker of it contributes: the same again and again. late: steps until that is applied.

    values: of the parameters; of a keeper that is to go on from others they are those in `first`.
    """

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


def replicated(
    first: Sequence[torch.Tensor],
    route: str,
    *,
    behind: bool = False,
    representation: Representation = EXACT,
    partners: Partners | None = None,
    shares: bool = False,
    gathers: bool = False,
) -> Iterator[Kept]:
    """Parameters are the sums of what two workers contribute."""
    device, group = torch.device("cpu"), joined(1 if first else 0)
    begun = first or [torch.zeros(SIZE)] * 3
    named = [(f"p{number}", nn.Parameter(values.clone())) for number, values in enumerate(begun)]
    plans = [BucketPlan([one], torch.float32, device, representation) for one in named]
    holdings = PARTITIONS.load("sharded")().part(nn.ParameterDict(dict(named)), group.rank, group.size).holdings
    owned = OwnedValues(holdings, frees=False, gathers=gathers) if shares and group.size > 1 else None
    comm_setup, votes = (
        ROOM.load("allreduce")(route=route).comm_setup(group, owned),
        BufferShape(1, torch.float32, device),
    )
    keeper = comm_setup.build(group, plans, votes, partners=partners)
    keeper = DelayedKeeper(keeper) if behind else keeper
    buckets = Buckets(plans, keeper.memory[:-1], chunk_mb=25, private=False)
    slots, reads = buckets.slots, count()

    def apply(chunk: Chunk) -> None:
        for slot, part in zip(chunk.slots, chunk.parts, strict=True):
            for own in [part] if owned is None else owned.holdings.kept(part):
                values_in(own, slot.parameter).add_(values_in(own, slot.agreed))

    def fill() -> None:
        buckets.fill(lambda slot: slot.view.copy_(torch.linspace(-1.0, 2.0, SIZE)))
        keeper.vote()

    def read() -> list[torch.Tensor]:
        if gathers:
            group.bulletin.share(f"{next(reads)} times all have gathered", 1)  # from each other
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
            voted=lambda: None,
            apply=apply if keeper.overlaps else None,
            travelled=lambda *_: None,
            applied=lambda *_: None,
        )
    )
    gates, memory = [slot.gate for slot in slots], [slot.view for slot in slots]
    if keeper.gathered is not None:
        keeper.gathered.begin(None)
        gates = [keeper.gathered.gates[id(slot.parameter)] for slot in slots]
    yield Kept(keeper, gates, memory, read, late=behind, fill=fill, after=at_once)
    keeper.close()


@contextmanager
def in_shared_memory(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "shared")


@contextmanager
def over_a_route(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring")


@contextmanager
def between_partners(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring", partners=lambda rank: (1 - rank,))


@contextmanager
def shares_around_a_ring(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring", shares=True)


@contextmanager
def shares_that_are_gathered(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring", shares=True, gathers=True)


@contextmanager
def shares_in_shared_memory(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "shared", shares=True)


@contextmanager
def encoded(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring", representation=ENCODED)


@contextmanager
def a_step_behind(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    yield from replicated(first, "ring", behind=True)


def applied(server: Serving, number: int, one: Learner) -> None:
    one.exchange.settle()
    update(server, number)


@contextmanager
def on_servers(first: Sequence[torch.Tensor] = (), representation: Representation = EXACT) -> Iterator[Kept]:
    with (
        serving(first=dict(enumerate(first)), codec=representation.frames) as server,
        learning(server, representation=representation) as one,
    ):

        def fill() -> None:
            for values in one.memory:
                values.copy_(one.gradient)

        yield Kept(
            one.exchange,
            one.gates,
            one.memory,
            lambda: one.network,
            fill=fill,
            before=lambda clock: one.exchange.begin(clock, clock),
            update=lambda number: applied(server, number, one),
        )


@contextmanager
def encoded_for_servers(first: Sequence[torch.Tensor] = ()) -> Iterator[Kept]:
    with on_servers(first, ENCODED) as one:
        yield one


ENCODED = representation_of(CODECS.load("onebit")())
Make = Callable[..., AbstractContextManager[Kept]]
KEEPERS: dict[str, dict[str, Make]] = {
    "allreduce": {
        "in shared memory": in_shared_memory,
        "over a route": over_a_route,
        "a step behind": a_step_behind,
        "between partners": between_partners,
        "shares, around a ring": shares_around_a_ring,
        "shares, gathered": shares_that_are_gathered,
        "shares, in shared memory": shares_in_shared_memory,
    },
    "server": {"on servers": on_servers},
}
WITH_RESIDUALS: dict[str, Make] = {"encoded": encoded, "encoded, on servers": encoded_for_servers}
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
        traffic = totals(one.keeper.traffic)
        one.keeper.close()
        one.keeper.close()
    once = found[one.late]
    assert once.any()
    counted = [round(float((values / once).nan_to_num().max())) for values in found]
    assert all(torch.allclose(values, once * count) for values, count in zip(found, counted, strict=True))
    return [*counted, traffic[0] > 0, traffic[1] > 0]


@pytest.mark.parametrize("name", ALL)
def test_what_is_read_holds_all_that_was_pushed_before_the_release_whatever_memory_is_filled_with_then(workers, name):
    late, travels = name == "a step behind", "in shared memory" not in name
    for found in workers(2, read_after_each, name):
        assert found == [1 - late, 2 - late, 3 - late, travels, travels]


def goes_on(rank: int, world_size: int, name: str) -> list[bool]:
    """Whether one that is given another's parameters and state takes the other's next steps, bit for bit."""
    make = (ALL | WITH_RESIDUALS)[name]
    with make() as one:
        for _ in range(3):
            one.contribute()
            settled(one)
        kept, state = one.read(), one.keeper.state()
        first = next_steps(one)
    with make(kept) as again:
        again.keeper.restore([state])
        found = next_steps(again)
        again.keeper.restore([])
        left = again.keeper.state()
    moved = not torch.equal(first[0], kept[0])
    return [moved, bool(state) == (name in WITH_RESIDUALS), not left, *map(torch.equal, first, found)]


def settled(one: Kept) -> None:
    """Nothing is under way, not even a step behind."""
    one.keeper.settle()
    if isinstance(one.keeper, DelayedKeeper):
        one.keeper.drain()


def next_steps(one: Kept) -> list[torch.Tensor]:
    """The parameters after each of two."""
    found = []
    for _ in range(2):
        one.contribute()
        settled(one)
        found += one.read()
    return found


@pytest.mark.parametrize("name", [*ALL, *WITH_RESIDUALS])
def test_one_that_goes_on_from_another_s_parameters_and_state_takes_the_same_next_steps_bit_for_bit(workers, name):
    for found in workers(2, goes_on, name):
        assert all(found), found
