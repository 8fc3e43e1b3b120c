"""The timetable of a sum, as plain facts: what a rank takes from whom, adds, and hands on to whom. No I/O here.

Every rank derives its own timetable from the same few numbers, so that what one sends is what another awaits, in the
same order on each link and flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SEGMENT_BYTES = 512 * 1024  # what travels in one piece: the wire carries the next while one is added
LEAST_BYTES = 64 * 1024  # below it a message costs more than the overlap gains

Piece = tuple[int, int]  # values from start to end


@dataclass(frozen=True, slots=True)
class Hop:
    """One station of the values from `start` to `end`: received from `source`, added to what is here, sent on to `to`.

    source, to: ranks; None: nothing is received, or sent. add: what comes is added; otherwise it is the sum and is
    stored. first: these values are met for the first time here; what this node contributes is put together now. flow:
    tells messages apart that go from one rank to another in no common order.
    """

    start: int
    end: int
    source: int | None = None
    to: int | None = None
    add: bool = False
    first: bool = False
    flow: int = 0


Plan = Callable[[int, int], Sequence[Hop]]  # of a range of so many values of so many bytes each


def share(start: int, end: int, parts: int, part: int) -> Piece:
    """Part `part` of the values from `start` to `end`, cut evenly into `parts`; empty if there are too few."""
    return start + (end - start) * part // parts, start + (end - start) * (part + 1) // parts


def pieces(start: int, end: int, value_bytes: int, wanted: int = 2) -> list[Piece]:
    """The segments in which these values travel: `wanted` or more, but none of few bytes; none of no values."""
    size_bytes = (end - start) * value_bytes
    count = max(-(-size_bytes // SEGMENT_BYTES), min(wanted, size_bytes // LEAST_BYTES), 1)
    return [piece for part in range(count) if (piece := share(start, end, count, part))[0] < piece[1]]


def around(ring: Sequence[int], place: int, start: int, end: int, value_bytes: int, *, first: bool) -> Iterator[Hop]:
    """The hops of the rank at `place` of a ring that sums these values: reduce-scatter, then all-gather.

    Each link carries 2 (n - 1) / n of the values: no all-reduce sends less (Patarasuk & Yuan, JPDC 2009). Slice k ends
    its sum at place k. first: as in Hop, at the hop at which a slice is met first.
    """
    places = len(ring)
    before, after = ring[place - 1], ring[(place + 1) % places]
    for step in range(2 * places - 1):
        adds = 0 < step < places
        source = before if step > 0 else None
        to = after if step < 2 * places - 2 else None
        for low, high in pieces(*share(start, end, places, (place - 1 - step) % places), value_bytes):
            yield Hop(low, high, source, to, add=adds, first=first and step < places)


def scatter(ring: Sequence[int], place: int, slices: Sequence[Sequence[Piece]], value_bytes: int) -> Iterator[Hop]:
    """The reduce-scatter of `around` alone: place k of the ring ends with the sum of slice k, of any pieces."""
    places = len(ring)
    before, after = ring[place - 1], ring[(place + 1) % places]
    for step in range(places):
        source = before if step > 0 else None
        to = after if step < places - 1 else None
        for low, high in _in_pieces(slices[(place - 1 - step) % places], value_bytes):
            yield Hop(low, high, source, to, add=step > 0, first=True)


def gather(ring: Sequence[int], place: int, slices: Sequence[Sequence[Piece]], value_bytes: int) -> Iterator[Hop]:
    """The all-gather of `around` alone: place k of the ring has slice k, and everybody ends with all."""
    places = len(ring)
    before, after = ring[place - 1], ring[(place + 1) % places]
    for step in range(places):
        source = before if step > 0 else None
        to = after if step < places - 1 else None
        for low, high in _in_pieces(slices[(place - step) % places], value_bytes):
            yield Hop(low, high, source, to)


def _in_pieces(runs: Sequence[Piece], value_bytes: int) -> Iterator[Piece]:
    for start, end in runs:
        yield from pieces(start, end, value_bytes)
