"""One rank of a row of _server_transports.py: sides take turns, and rank 0, the server, writes what they took.

    _server_ranks.py SIDES ROUNDS FILE

SIDES: names by commas: of sketches, or of ours: a transport, its security and the values of a slice, joined by "/". A
turn is one round: every worker pushes and pulls all. They alternate, and who is first changes with every round. What
was pulled is checked at the end. FILE gets JSON: by side a list of [seconds of the slowest worker, CPU seconds of the
server, CPU seconds of one worker], of each round after one that does not count.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Protocol

import torch
from torch import distributed

from _server_ours import Setup, side
from _server_sketches import SKETCHES
from volary.bench.meeting import BenchRanks, met
from volary.placement import Place, find

TIMEOUT_S = 60.0
SIZE = 25_000_000  # values


class Side(Protocol):
    """One way, this rank's part of it."""

    def turn(self) -> None:
        """One round."""

    def check(self, rounds: int) -> None:
        """Raise RuntimeError if values are not what so many rounds make of them."""

    def close(self) -> None:
        """End it."""


def main() -> None:
    names, rounds, file = sys.argv[1:]
    torch.set_num_threads(1)
    place = find()
    with met(place, TIMEOUT_S) as ranks:
        sides = {name: made(name, ranks, place) for name in names.split(",")}
        found: dict[str, list[list[float]]] = {name: [] for name in sides}
        for number in range(int(rounds) + 1):
            for name in list(sides)[:: -1 if number % 2 else 1]:
                found[name].append(turn(sides[name], ranks))
        for one in sides.values():
            one.check(int(rounds) + 1)
        distributed.barrier()
        for one in sides.values():
            one.close()
        if ranks.rank == 0:
            Path(file).write_text(json.dumps({name: turns[1:] for name, turns in found.items()}), encoding="utf-8")


def made(name: str, ranks: BenchRanks, place: Place) -> Side:
    if name in SKETCHES:
        return SKETCHES[name](ranks, place.address, SIZE)
    transport, security, slice_size = name.split("/")
    return side(ranks, place.address, Setup(SIZE, int(slice_size), transport, security))  # type: ignore[arg-type]


def turn(side: Side, ranks: BenchRanks) -> list[float]:
    distributed.barrier()
    cpu, begun = cpu_s(), time.perf_counter()
    side.turn()
    seconds = 0.0 if ranks.rank == 0 else time.perf_counter() - begun
    slowest = torch.tensor([seconds], dtype=torch.float64)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    used = torch.zeros(ranks.world_size, dtype=torch.float64)
    used[ranks.rank] = cpu_s() - cpu
    distributed.all_reduce(used)
    return [float(slowest), float(used[0]), float(used[1:].mean())]


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
