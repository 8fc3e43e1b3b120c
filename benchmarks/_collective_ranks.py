"""One rank of a row of _exchange_collectives.py: two ways of a collective take turns, and rank 0 writes their seconds.

    _collective_ranks.py COLLECTIVE WAY BYTES ROUNDS CALLS FILE

WAY is ours, torch's own is the peer. Both are checked once; then they alternate, who is first changes with every round,
and a turn is CALLS calls. FILE gets a JSON list of [ours, theirs]: seconds of a call, the slowest rank's, of each round
after one that does not count.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch import distributed

from volary.bench.entrants import TORCH, Entrant, Field
from volary.bench.meeting import met
from volary.comm.topology import measuring
from volary.comm.topology.links import Links
from volary.placement import find

TIMEOUT_S = 60.0
VALUE_BYTES = 4


def main() -> None:
    collective, way, *numbers, file = sys.argv[1:]
    size_bytes, rounds, calls = map(int, numbers)
    torch.set_num_threads(1)
    with met(find(), TIMEOUT_S) as ranks:
        field = Field(ranks, measuring.find(Links(ranks.group())))
        numel = size_bytes // VALUE_BYTES // ranks.world_size * ranks.world_size
        sides = [field.entrant(collective, name, numel) for name in (way, TORCH)]
        for side in sides:
            check(side)
        found = [turns(sides, calls, swapped=bool(number % 2)) for number in range(rounds + 1)][1:]
        if ranks.rank == 0:
            Path(file).write_text(json.dumps(found), encoding="utf-8")


def check(side: Entrant) -> None:
    side.fill()
    side.run()
    if not side.is_right():
        raise RuntimeError("the result is wrong")


def turns(sides: list[Entrant], calls: int, swapped: bool) -> list[float]:
    order = reversed(sides) if swapped else sides
    seconds = [turn(side, calls) for side in order]
    return seconds[::-1] if swapped else seconds


def turn(side: Entrant, calls: int) -> float:
    distributed.barrier()
    begun = time.perf_counter()
    for _ in range(calls):
        side.run()
    taken = torch.tensor([(time.perf_counter() - begun) / calls], dtype=torch.float64)
    distributed.all_reduce(taken, op=distributed.ReduceOp.MAX)
    return float(taken)


if __name__ == "__main__":
    main()
