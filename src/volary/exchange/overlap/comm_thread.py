"""The one thread of a process that owns the exchange: it sums parcels over all ranks, in an agreed order."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    from volary.comm.sums.route import Arrival, BufferSums

    _Underway: TypeAlias = tuple[int, float, float, Arrival]  # its number, when it was ready and sent

JOIN_S = 5.0


@dataclass(frozen=True)
class Parcel:
    """The values `start` to `end` of a buffer of the route, which travel at once.

    spread: it travels straight to all other ranks, as factors do. A parcel that travels from neighbour to neighbour
    meanwhile would get a small part of the link, whatever the order says: it has its turn before or after.
    """

    buffer: int
    start: int
    end: int
    spread: bool = False


@dataclass(frozen=True)
class ParcelTimes:
    """How a parcel fared, in seconds of time.perf_counter: when it was there, on the wire, and summed."""

    ready_s: float
    sent_s: float
    received_s: float


class CommThread:
    """Sums each parcel once a step, when this rank's `depart` said that it is whole.

    order: of the parcels in a step; it may be replaced between two steps. prompt: parcels that are waited for before
    any other leaves: those may depend on them. late: parcels that depend on the arrival of those before. first: tasks
    done on the thread before the first step. arrived: called on the thread with each parcel's number and how it fared,
    in order. failed: called on the thread, once, with what went wrong; nothing follows it.
    """

    def __init__(
        self,
        route: BufferSums,
        parcels: Sequence[Parcel],
        arrived: Callable[[int, ParcelTimes], None],
        failed: Callable[[BaseException], None],
        first: Sequence[Callable[[], None]] = (),
        prompt: Container[int] = (),
        late: Container[int] = (),
    ) -> None:
        self.order = list(range(len(parcels)))
        self._route, self._parcels, self._arrived, self._failed, self._first = route, parcels, arrived, failed, first
        self._prompt, self._late = prompt, late
        self._ready_s: list[float | None] = [None] * len(parcels)
        self._awaited: int | None = None  # the parcel whose turn it is, while it has not departed
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def depart(self, number: int, most_waiting: int | None = None) -> None:
        """Parcel `number` of this step is whole; from any thread.

        most_waiting: returns only when no more than so many wait for their turn, or the one whose turn it is.
        """
        with self._changed:
            self._ready_s[number] = time.perf_counter()
            if number == self._awaited:
                self._awaited = None
            self._changed.notify_all()
            if most_waiting is not None:
                self._changed.wait_for(lambda: self._closing or self._may_pass(most_waiting))

    def _may_pass(self, most_waiting: int) -> bool:
        return self._awaited is not None or sum(ready_s is not None for ready_s in self._ready_s) <= most_waiting

    def close(self) -> None:
        """End the thread, after what is on the wire; the group must still stand, or its connections be cut."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        try:
            for task in self._first:
                task()
            while not self._closing:
                self._step()
        except BaseException as error:  # whoever waits must hear of it, whatever it is
            self._failed(error)
        with self._changed:  # nobody waits for his turn any more
            self._closing = True
            self._changed.notify_all()

    def _step(self) -> None:
        under_way: deque[_Underway] = deque()
        for number in self._order_of_step():
            while under_way and number in self._late and self._ready_s[number] is None:
                self._land(*under_way.popleft())
            ready_s = self._taken(number)
            if ready_s is None:
                break
            parcel = self._parcels[number]
            while under_way and self._waits_for(under_way, parcel):
                self._land(*under_way.popleft())
            sent_s = time.perf_counter()
            arrival = self._route.sum_up(parcel.buffer, parcel.start, parcel.end)
            under_way.append((number, ready_s, sent_s, arrival))
            while under_way and number in self._prompt:
                self._land(*under_way.popleft())
        while under_way:
            self._land(*under_way.popleft())

    def _waits_for(self, under_way: deque[_Underway], parcel: Parcel) -> bool:
        """Whether the first of what is under way must have come before `parcel` leaves."""
        first, *_ = under_way[0]
        return len(under_way) == self._route.in_flight or self._parcels[first].spread != parcel.spread

    def _order_of_step(self) -> Sequence[int]:
        """The order that is agreed when the step's first parcel is here: between two steps it may change."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or any(ready_s is not None for ready_s in self._ready_s))
            return self.order

    def _taken(self, number: int) -> float | None:
        """Wait until parcel `number` is whole; return when it was; None if the line closes first."""
        with self._changed:
            self._awaited = number if self._ready_s[number] is None else None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closing or self._ready_s[number] is not None)
            ready_s, self._ready_s[number] = self._ready_s[number], None
            self._changed.notify_all()
        return ready_s

    def _land(self, number: int, ready_s: float, sent_s: float, arrival: Arrival) -> None:
        arrival.wait()
        self._arrived(number, ParcelTimes(ready_s, sent_s, time.perf_counter()))
