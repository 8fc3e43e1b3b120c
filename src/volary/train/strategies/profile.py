"""Watches some steps, and says in which order parcels had better travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from volary.exchange.overlap.order import StepTimes, most_urgent_first, quickest

if TYPE_CHECKING:
    from volary.exchange.gradients.bucket import Chunk, ParameterGate, ParameterSlot
    from volary.exchange.overlap.comm_thread import ParcelTimes

MUCH_LESS = 0.3
WARM_STEPS = 2  # the first steps take their time for other reasons
PROFILED_STEPS = 5  # after them: what disturbs one or two of these does not count


class Profile:
    """Watches steps, from one backward to the next: when parcels were there, how long updates and waits took.

    slots: in the order in which forward uses them. links_per_s: how much of `Chunk.load` links carry in a second, by
    what was measured before training; None if nothing was. Times are of time.perf_counter.
    """

    def __init__(self, chunks: Sequence[Chunk], slots: Sequence[ParameterSlot], links_per_s: float | None) -> None:
        self._chunks, self._links_per_s = chunks, links_per_s
        self._slots = [slot for slot in slots if slot.chunks]
        self._travelled: dict[int, ParcelTimes] = {}  # by parcel
        self._update_s: dict[int, float] = {}
        self._waits: list[tuple[ParameterGate, float, float]] = []
        self._cycles: list[StepTimes] = []  # of the steps that were watched

    def travelled(self, chunk: Chunk, how: ParcelTimes) -> None:
        """A parcel arrived; its first chunk tells which."""
        self._travelled[chunk.parcel] = how

    def updated(self, chunk: Chunk, started_s: float, ended_s: float) -> None:
        """Add the time that the update of a chunk took: seconds of a monotonic clock."""
        self._update_s[chunk.parcel] = self._update_s.get(chunk.parcel, 0.0) + ended_s - started_s

    def waited(self, gate: ParameterGate, started_s: float, ended_s: float) -> None:
        """Note that forward waited for a parameter: seconds of a monotonic clock."""
        self._waits.append((gate, started_s, ended_s))

    def ended(self, began_s: float, ends_s: float) -> int:
        """A step is over: how many there were. began_s, ends_s: of its backward, and of the next forward."""
        self._cycles.append(self._cycle(began_s, ends_s))
        self._update_s, self._waits = {}, []
        return len(self._cycles)

    def order(self) -> list[int]:
        """The order of chunks, of each parcel the first, by the medians of what was seen."""
        seen = self._cycles
        cycle = StepTimes(
            ready_s=[median(each) for each in zip(*(one.ready_s for one in seen), strict=True)],
            takes_s=[median(each) for each in zip(*(one.takes_s for one in seen), strict=True)],
            update_s=[median(each) for each in zip(*(one.update_s for one in seen), strict=True)],
            urgency=seen[0].urgency,
            uses=[
                (each[0][0], median(then_s for _, then_s in each))
                for each in zip(*(one.uses for one in seen), strict=True)
            ],
        )
        first = self._first()
        guess = most_urgent_first(cycle.ready_s, cycle.takes_s, cycle.urgency)
        return [first[parcel].index for parcel in quickest(cycle, guess)]

    def _first(self) -> dict[int, Chunk]:
        """The first chunk of each parcel."""
        return {chunk.parcel: chunk for chunk in reversed(self._chunks)}

    def _cycle(self, began_s: float, ends_s: float) -> StepTimes:
        first = self._first()
        parcels = sorted(first)
        seen = [self._travelled[parcel] for parcel in parcels]
        loads = [first[parcel].load for parcel in parcels]
        per_s = self._per_s(sum(loads) / max(1e-9, busy_s(seen)))
        urgency = [min(place for place, slot in enumerate(self._slots) if _holds(slot, parcel)) for parcel in parcels]
        return StepTimes(
            ready_s=[max(0.0, one.ready_s - began_s) for one in seen],
            takes_s=[load / max(1.0, per_s) for load in loads],
            update_s=[self._update_s.get(parcel, 0.0) for parcel in parcels],
            urgency=urgency,
            uses=self._uses(began_s, ends_s),
        )

    def _per_s(self, seen_per_s: float) -> float:
        """The bytes that the wire carries: as measured before, unless much less was seen, as it waits for late ranks
        too.
        """
        known = self._links_per_s
        return known if known is not None and seen_per_s > MUCH_LESS * known else seen_per_s

    def _uses(self, began_s: float, ends_s: float) -> list[tuple[list[int], float]]:
        """The time that forward computed between two waits is divided among the parameters from the first of them on.

        As backward was: it takes some twice the time that forward takes, in each layer.
        """
        then_s: dict[ParameterGate, float] = {}
        bounds = [*self._waits, (None, ends_s, ends_s)]
        for (gate, _, ended_s), (_, started_s, _) in pairwise(bounds):
            if gate is not None:
                then_s[gate] = then_s.get(gate, 0.0) + max(0.0, started_s - ended_s)
        parcels = [sorted({chunk.parcel for chunk in slot.chunks}) for slot in self._slots]
        sharing = Counter(parcel for one in parcels for parcel in one)
        backward_s = self._backward_s(began_s)
        weights = [max(1e-9, sum(backward_s[parcel] / sharing[parcel] for parcel in one)) for one in parcels]
        starts = [number for number, slot in enumerate(self._slots) if slot.gate in then_s]
        shares = [0.0] * len(parcels)
        for start, end in pairwise([*starts, len(parcels)]):
            whole, seconds = sum(weights[start:end]), then_s[self._slots[start].gate]
            shares[start:end] = [seconds * weight / whole for weight in weights[start:end]]
        return list(zip(parcels, shares, strict=True))

    def _backward_s(self, began_s: float) -> dict[int, float]:
        """About how long backward took for the layers of each parcel.

        Factors are there when it comes to their layer, other gradients when it has been there.
        """
        factors = {chunk.parcel for chunk in self._chunks if chunk.bucket.payload is not None}
        found, before, now_s = dict.fromkeys(self._travelled, 0.0), -1, began_s
        for parcel, how in sorted(self._travelled.items(), key=lambda item: item[1].ready_s):
            there = [one for one, of in ((before, before in factors), (parcel, parcel not in factors)) if of] or [
                parcel
            ]
            for one in there:
                found[one] += max(0.0, how.ready_s - now_s) / len(there)
            before, now_s = parcel, how.ready_s
        return found


def _holds(slot: ParameterSlot, parcel: int) -> bool:
    return any(chunk.parcel == parcel for chunk in slot.chunks)


def busy_s(seen: Iterable[ParcelTimes]) -> float:
    """Seconds in which anything was on the wire."""
    busy, until = 0.0, float("-inf")
    for one in sorted(seen, key=lambda one: one.sent_s):
        busy += max(0.0, one.received_s - max(one.sent_s, until))
        until = max(until, one.received_s)
    return busy
