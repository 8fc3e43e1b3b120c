"""The thread that carries chunks and the one that applies them: order, waiting, failing and ending."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from _workers import alone
from exchange._own_route import AT_MOST_S, OwnRoute
from exchange._ranks import shape
from volary.comm.topology.links import Links
from volary.comm.topology.topology import Topology
from volary.errors import PeerLost
from volary.exchange._base import KeeperCallbacks
from volary.exchange.choice.bucketing import plan
from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.gradients.bucket import Chunk
from volary.exchange.gradients.buckets import Gradients
from volary.exchange.overlap.broadcasts import Broadcasts
from volary.exchange.overlap.comm_thread import CommThread, Parcel, ParcelTimes
from volary.exchange.overlap.overlapped import OverlappedKeeper

VOTES = 3  # the number of the parcel after three chunks


def overlapped(route: OwnRoute) -> OverlappedKeeper:
    broadcasts = Broadcasts(Links(alone()), Topology.of([0]), None)
    return OverlappedKeeper(route, broadcasts, ErrorFeedback([]), "alone", overlaps=True)


class Turns:
    """Three parameters, a bucket each, over a route of one rank. applied: chunks whose update has been made."""

    def __init__(
        self,
        *,
        fails_at: int | None = None,
        update: Callable[[Chunk], None] | None = lambda _: None,
        votes_first: bool = True,
        votes_awaited: bool = False,
    ) -> None:
        module = nn.ParameterList(nn.Parameter(torch.zeros(4)) for _ in range(3))
        plans = plan(list(module.named_parameters()), 1e-6)
        self.route = OwnRoute([*(one.shape for one in plans), shape(2)], fails_at)
        self.exchange = overlapped(self.route)
        *memory, _ = self.route.memory
        self.buckets = Gradients(
            plans,
            memory,
            [],
            chunk_mb=25,
            passes=1,
            ready=lambda _: None,
            weight=lambda: 1.0,
        )
        self.version = 0
        self.applied: list[int] = []
        self.said: list[str] = []
        self.update = update
        self.exchange.start(
            KeeperCallbacks(
                first=(),
                chunks=self.buckets.chunks,
                slots=self.buckets.slots,
                votes=Parcel(VOTES, 0, 2),
                votes_first=votes_first,
                votes_awaited=votes_awaited,
                voted=lambda: self.said.append("votes"),
                apply=self._apply if update else None,
                travelled=lambda chunk, _: self.said.append(f"chunk {chunk.index}"),
                applied=lambda chunk, *_: self.said.append(f"update {chunk.index}"),
            )
        )

    def _apply(self, chunk: Chunk) -> None:
        assert self.update
        self.update(chunk)
        self.applied.append(chunk.index)

    def depart(self, *numbers: int) -> None:
        for number in numbers:
            if number == VOTES:
                self.exchange.vote()
            else:
                self.exchange.push(number)

    def release(self) -> None:
        self.version += 1
        self.exchange.release(self.version)

    def summed(self) -> list[int]:
        return [buffer for buffer, _, _ in self.route.sums]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for the route or a message: a push that is not expected may come any time, and wakes nobody here."""
        ticks = threading.Event()
        for _ in range(int(AT_MOST_S * 100)):
            if condition():
                return
            ticks.wait(0.01)
        raise AssertionError("waited in vain")


@pytest.fixture
def turns() -> Iterator[Callable[..., Turns]]:
    made: list[Turns] = []

    def make(**settings: object) -> Turns:
        made.append(Turns(**settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.route.go_on.set()
        one.exchange.close()


@pytest.mark.parametrize("votes_first", [True, False])
def test_parcels_leave_in_the_agreed_order_whatever_order_they_come_in(turns, votes_first):
    it = turns(votes_first=votes_first)
    for _ in range(2):
        it.depart(2, VOTES, 1, 0)
        it.release()
        it.exchange.settle()
    it.wait_for(lambda: len(it.route.sums) == 8)
    assert it.summed() == ([VOTES, 0, 1, 2] if votes_first else [0, 1, 2, VOTES]) * 2
    assert it.applied == [0, 1, 2] * 2


def test_a_new_order_holds_from_the_very_next_step(turns):
    it = turns()
    for order in ([2, 0, 1], [1, 2, 0], [0, 1, 2]):
        it.exchange.reorder(order)
        # the votes wait already: the thread that is between two steps must not have taken an order yet
        it.depart(0, 1, 2, VOTES)
        it.release()
        it.exchange.settle()
        assert it.summed()[-4:] == [VOTES, *order]


def test_parameters_change_only_after_backward_and_each_waits_for_its_own(turns):
    update_0 = threading.Event()
    it = turns(update=lambda chunk: None if chunk.index else assert_set(update_0))
    it.depart(VOTES, 0, 1, 2)
    it.wait_for(lambda: "chunk 2" in it.said)
    assert it.applied == [], "backward may still read the parameters"
    assert [slot.gate.waits for slot in it.buckets.slots] == [0, 0, 0], "and everybody"
    it.release()
    assert [slot.gate.waits for slot in it.buckets.slots] == [1, 1, 1]
    update_0.set()
    it.exchange.pull(it.buckets.slots[0].gate)
    assert it.applied[0] == 0
    it.exchange.settle()
    assert it.applied == [0, 1, 2]
    assert [slot.gate.waits for slot in it.buckets.slots] == [0, 0, 0]


def assert_set(event: threading.Event) -> None:
    assert event.wait(AT_MOST_S)


def test_a_parameter_in_use_waits_for_nobody_else(turns):
    last = threading.Event()
    it = turns(update=lambda chunk: assert_set(last) if chunk.index == 2 else None)
    it.depart(VOTES, 0, 1, 2)
    it.release()
    for number in (0, 1):
        it.exchange.pull(it.buckets.slots[number].gate)
    assert it.applied == [0, 1]
    last.set()
    it.exchange.settle()


def test_how_a_chunk_fared_is_told_before_the_next_step_can_begin(turns):
    it = turns(update=None)
    for step in range(1, 200):
        it.depart(VOTES, 0, 1, 2)
        it.release()
        it.exchange.settle()
        assert [it.said.count(f"chunk {number}") for number in range(3)] == [step] * 3


def test_without_updates_of_its_own_parameters_are_there_when_all_sums_are(turns):
    it = turns(update=None, votes_first=False)
    it.depart(0, 1, 2, VOTES)
    it.release()
    it.exchange.settle()
    it.exchange.wait_for(lambda: "votes" in it.said)
    assert it.said == ["chunk 0", "chunk 1", "chunk 2", "votes"]


@pytest.mark.parametrize("fails_at", [0, 1, 3, 5])
def test_a_failure_on_the_way_reaches_everybody_who_waits_now_or_later(turns, fails_at):
    it = turns(fails_at=fails_at)
    with pytest.raises(PeerLost, match="rank 1 is gone"):
        for _ in range(2):
            it.depart(VOTES, 0, 1, 2)
            it.release()
            it.exchange.settle()
    for wait in (it.exchange.settle, lambda: it.exchange.wait_for(lambda: False)):
        with pytest.raises(PeerLost, match="rank 1 is gone"):
            wait()


def test_a_failing_update_reaches_who_waits_for_its_parameter(turns):
    def update(chunk: Chunk) -> None:
        if chunk.index == 1:
            raise ZeroDivisionError("a rule of the user's own")

    it = turns(update=update)
    it.depart(VOTES, 0, 1, 2)
    it.release()
    for number in (1, 2):
        with pytest.raises(ZeroDivisionError, match="of the user's own"):
            it.exchange.pull(it.buckets.slots[number].gate)


@pytest.mark.parametrize("so_far", ["nothing came", "votes came", "all came", "released"])
def test_closing_ends_both_threads_wherever_they_are(turns, so_far):
    it = turns()
    if so_far != "nothing came":
        it.depart(VOTES)
    if so_far in ("all came", "released"):
        it.depart(0, 1, 2)
    if so_far == "released":
        it.release()
    it.exchange.close()
    assert not {"exchange", "update"} & {thread.name for thread in threading.enumerate()}


def test_what_is_on_the_wire_when_it_closes_is_waited_for(turns):
    it = turns(votes_first=False)
    it.route.go_on.clear()
    it.depart(0, 1)
    it.wait_for(lambda: len(it.route.sums) == 2)
    assert it.said == []
    closing = threading.Thread(target=it.exchange.close)
    closing.start()
    it.route.go_on.set()
    closing.join(AT_MOST_S)
    assert it.said == ["chunk 0", "chunk 1"]


def test_votes_that_others_wait_for_come_before_anything_else_leaves(turns):
    it = turns(votes_awaited=True)
    it.route.go_on.clear()
    it.depart(VOTES, 0)
    it.wait_for(lambda: it.summed() == [VOTES])
    it.route.go_on.set()
    it.wait_for(lambda: it.said == ["votes"] and it.summed() == [VOTES, 0])


def test_what_goes_to_all_ranks_and_what_goes_to_a_neighbour_are_not_on_the_wire_at_once():
    route, here = OwnRoute([shape(1)] * 6), threading.Event()
    spread = (False, True, True, False, False, True)
    parcels = [Parcel(buffer, 0, 1, spread=one) for buffer, one in enumerate(spread)]
    arrived: list[int] = []

    def come(number: int, _: ParcelTimes) -> None:
        arrived.append(number)
        if number == 5:
            here.set()

    line = CommThread(route, parcels, come, lambda error: None)
    for number in reversed(range(6)):
        line.depart(number)
    assert here.wait(AT_MOST_S)
    line.close()
    assert arrived == list(range(6))
    assert route.beside == [[], [], [1], [], [3], []]


def test_tasks_before_the_first_step_are_done_on_its_thread_in_order(turns):
    done: list[str] = []
    it = turns()
    it.exchange.close()
    again = overlapped(it.route)
    use = KeeperCallbacks(**{**vars(it.exchange._use), "first": [lambda n=n: done.append(note(n)) for n in range(3)]})
    again.start(use)
    again.vote()
    for number in (0, 1, 2):
        again.push(number)
    again.release(1)
    again.settle()
    again.close()
    assert done == ["0 on exchange", "1 on exchange", "2 on exchange"]


def note(number: int) -> str:
    return f"{number} on {threading.current_thread().name}"
