"""Cuts parameters into slices: each chunk of gradients evenly over all shards, so that none is a hot one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from volary.sharding.ranges import Range

MOST_PARTS = 64  # of a slice: a header has a bit for each


@dataclass(frozen=True)
class Slice:
    """A run of values that is pushed, kept, updated and pulled at once, with a clock of its own.

    number: of all slices of the run, the same in every process. shard: which keeps it. chunk: of the gradients that it
    is cut from; it is pushed when that is whole. parts: one after the other, as its values lie.
    """

    number: int
    shard: int
    chunk: int
    parts: tuple[Range, ...]

    @property
    def size(self) -> int:
        """The number of values."""
        return sum(part.size for part in self.parts)


def cut(
    chunks: Sequence[Sequence[Range]],
    rows: Mapping[str, int],
    shards: int,
    block: int = 1,
    whole: bool = False,
) -> list[Slice]:
    """Cut chunks, numbered as they come, into slices, in the order of the chunks.

    rows: values of a row, by the name of a parameter that is cut between rows; others are cut every `block` values.
    Each shard gets about the same of each chunk, to a row or block. whole: each parameter is one slice, which belongs
    to the last chunk that has some of it, and all together are spread as evenly as that goes, largest first.
    """
    if whole:
        return _whole(chunks, shards)
    loads = [0] * shards
    found: list[Slice] = []
    for chunk, parts in enumerate(chunks):
        pieces = _pieces([part for part in parts if part.size], rows, shards, block)
        for shard, piece in _spread(pieces, loads):
            for first in range(0, len(piece), MOST_PARTS):
                found.append(Slice(len(found), shard, chunk, tuple(piece[first : first + MOST_PARTS])))
    return found


def _pieces(parts: Sequence[Range], rows: Mapping[str, int], count: int, block: int) -> list[list[Range]]:
    """Cut the parts into `count` pieces of nearly equal size; some may be empty."""
    total = sum(part.size for part in parts)
    pieces: list[list[Range]] = [[] for _ in range(count)]
    at, piece = 0, 0
    for part in parts:
        unit = rows.get(part.name, block)
        start = part.start
        while start < part.end:
            # the piece ends nearest to its share that rows or blocks allow
            share = total * (piece + 1) / count - at
            end = part.end if piece == count - 1 else min(part.end, _nearest(start + share, unit))
            if end > start:
                pieces[piece].append(Range(part.name, start, end))
                at, start = at + end - start, end
            if start < part.end:
                piece += 1
    return pieces


def _nearest(value: float, unit: int) -> int:
    return round(value / unit) * unit


def _spread(pieces: Sequence[list[Range]], loads: list[int]) -> list[tuple[int, list[Range]]]:
    """Give each piece to another shard, the largest to the one that has least, and add it to `loads`."""
    sizes = [sum(part.size for part in piece) for piece in pieces]
    largest = sorted(range(len(pieces)), key=lambda number: -sizes[number])
    least = sorted(range(len(loads)), key=loads.__getitem__)
    shards = dict(zip(largest, least, strict=True))
    for number, shard in shards.items():
        loads[shard] += sizes[number]
    return [(shards[number], piece) for number, piece in enumerate(pieces) if piece]


def _whole(chunks: Sequence[Sequence[Range]], shards: int) -> list[Slice]:
    found: dict[str, tuple[int, list[Range]]] = {}
    for chunk, parts in enumerate(chunks):
        for part in parts:
            if part.size:
                found[part.name] = (chunk, [*found.get(part.name, (0, []))[1], part])
    joined = [(chunk, _joined(parts)) for chunk, parts in found.values()]
    loads, owners = [0] * shards, dict[str, int]()
    for _, part in sorted(joined, key=lambda one: -one[1].size):
        owners[part.name] = shard = min(range(shards), key=loads.__getitem__)
        loads[shard] += part.size
    in_order = sorted(joined, key=lambda one: one[0])
    return [Slice(number, owners[part.name], chunk, (part,)) for number, (chunk, part) in enumerate(in_order)]


def _joined(parts: Sequence[Range]) -> Range:
    ordered = sorted(parts, key=lambda part: part.start)
    assert all(a.end == b.start for a, b in pairwise(ordered)), "a parameter's parts leave gaps"
    return Range(ordered[0].name, ordered[0].start, ordered[-1].end)
