"""Chooses the order in which chunks travel: the same on all ranks, so that no two wait for each other crosswise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volary.exchange.gradients.bucket import Chunk, ParameterSlot

TRIES = 4000  # orders that are tried at most: a fraction of a second
CLEARLY = 0.98  # another order must need less than this share of the time: less is noise


@dataclass(frozen=True)
class StepTimes:
    """Times of a step, from the beginning of one backward to that of the next; all in seconds.

    ready_s: when in it each parcel exists. takes_s: how long it is on the wire, one after the other. update_s: how long
    its update takes: after backward, one at a time, the most urgent first. urgency: of each, the smallest is the most
    urgent. uses: in the order in which forward comes to them, the parcels that must be applied, and how long forward
    then computes until it comes to the next.
    """

    ready_s: Sequence[float]
    takes_s: Sequence[float]
    update_s: Sequence[float]
    urgency: Sequence[int]
    uses: Sequence[tuple[Sequence[int], float]]

    def lasts_s(self, order: Sequence[int]) -> float:
        """How long it would last if parcels travelled in this order."""
        done = self._applied_s(order)
        now = max(self.ready_s)
        for parcels, then_s in self.uses:
            now = max(now, max((done[parcel] for parcel in parcels), default=now)) + then_s
        return max([now, *done])

    def _applied_s(self, order: Sequence[int]) -> list[float]:
        """The time when each parcel's update is done."""
        wire, now, done = 0.0, max(self.ready_s), [0.0] * len(order)
        here: list[tuple[int, int]] = []
        left_s = list(self.update_s)
        for parcel in [*order, None]:
            if parcel is not None:
                wire = max(wire, self.ready_s[parcel]) + self.takes_s[parcel]
            until = inf if parcel is None else wire
            while here and now < until:
                current = here[0][1]
                spent = min(left_s[current], until - now)
                now, left_s[current] = now + spent, left_s[current] - spent
                if left_s[current] <= 0:
                    done[current] = now
                    heappop(here)
            if parcel is not None:
                now = max(now, wire)
                heappush(here, (self.urgency[parcel], parcel))
        return done


def as_backward_ends(chunks: Sequence[Chunk], slots: Sequence[ParameterSlot]) -> list[int]:
    """The numbers of chunks in the order in which they are whole. slots: in the order in which forward uses them.

    Of a layer a weight of several chunks comes first: it is written before the other gradients exist.
    """
    layers: dict[str, int] = {}
    for slot in slots:
        layers.setdefault(_layer(slot), len(layers))

    def last(chunk: Chunk) -> tuple[int, bool]:
        return max((-layers[_layer(slot)], len(slot.chunks) == 1) for slot in chunk.slots)

    return [chunk.index for chunk in sorted(chunks, key=last)]


def _layer(slot: ParameterSlot) -> str:
    return slot.name.rpartition(".")[0]


def quickest(cycle: StepTimes, first: Sequence[int]) -> list[int]:
    """An order in which the cycle is short: `first`, with one parcel after the other moved where that helps most.

    Urgency alone misses that the wire rests from the last arrival until the next backward has something to send: what
    is used last, and with little to do afterwards, had better arrive last. Stays with `first` unless it gains clearly.
    """
    best, best_s = list(first), cycle.lasts_s(first)
    tries, limit_s = 0, CLEARLY * best_s
    while tries < TRIES:
        found = min(((cycle.lasts_s(order), order) for order in _moves(best)), default=(best_s, best))
        tries += len(best) ** 2
        if found[0] >= best_s - 1e-9:
            break
        best_s, best = found
    return best if best_s < limit_s else list(first)


def _moves(order: Sequence[int]) -> Iterator[list[int]]:
    for place, parcel in enumerate(order):
        rest = [*order[:place], *order[place + 1 :]]
        yield from ([*rest[:to], parcel, *rest[to:]] for to in range(len(order)) if to != place)


def most_urgent_first(ready_s: Sequence[float], takes_s: Sequence[float], urgency: Sequence[int]) -> list[int]:
    """The order in which a wire would carry chunks that always takes the most urgent one that exists.

    ready_s: when in a step each chunk's gradients exist. takes_s: how long it is on the wire. urgency: the place in the
    network of the layer that waits for it; the smallest is needed first by the next forward. Chunks of the same layer
    keep their order. Priority scheduling as in Jayarajan et al. 2019 (P3) and Peng et al. 2019 (ByteScheduler).
    """
    coming = sorted(range(len(ready_s)), key=lambda chunk: (ready_s[chunk], chunk))
    here: list[int] = []
    order: list[int] = []
    now = 0.0
    while coming or here:
        if not here:
            now = max(now, ready_s[coming[0]])
        while coming and ready_s[coming[0]] <= now:
            here.append(coming.pop(0))
        chosen = min(here, key=lambda chunk: (urgency[chunk], chunk))
        here.remove(chosen)
        order.append(chosen)
        now += takes_s[chosen]
    return order
