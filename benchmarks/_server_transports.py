"""The rows of server.py about what carries tensors: push and pull of 100 MB by each worker, one server.

Ours: host, shard and slices of volary.server, each push an update of its own, at workers the link that training uses.
Peers: what a user would sketch (_server_sketches.py): plain sockets, gloo's send and receive (one receive at a time, or
all posted ahead), ZeroMQ; 4 MB chunks. All run in the same processes, on memory of their own, and take turns; what was
pulled is checked at the end. GB/s counts bytes in and out at the server.

tcp-1, tcp-2, tcp-4: loopback TCP, so many workers; ours in slices of 4 MB, with more than one worker of 10 MB: then
all cores are busy, and each slice costs some (one worker's slices overlap better if they are small; the sketches are no
faster in larger chunks). shm-4: ours through shared memory. ratio: the median over the rounds of ours / the sketch's
that is the fastest in the median. lab-1g: 4 hosts, one of them the server, links of 1 Gbit/s, payloads in the clear;
lab-1g-encrypted: as it is by default; ours in slices of 1 MB. ratio: of what TCP carries (0.957 of the rate). Above the
table stand all sides, with the CPU seconds of a round.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from _report import Options, Row
from volary.bench import local
from volary.lab import Lab
from volary.lab.network import rates
from volary.lab.timeline import Timeline

PROGRAM = Path(__file__).parent / "_server_ranks.py"
CARRIED = 0.957  # of a link's rate is TCP payload, with frames of 1500 bytes
SKETCHES = ("sockets", "gloo", "gloo-ahead", "zmq")  # as in _server_sketches.py, which needs what users need not have
ROUND_BYTES = 200_000_000  # of one worker, pushed and pulled
ROUNDS, QUICK_ROUNDS = 15, 5
AT_MOST_S = 300.0

Turns = list[list[float]]


@dataclass(frozen=True)
class Case:
    """The measurement of a row. ours: a side's name (_server_ranks.py). rate: of the lab's links; None: loopback."""

    ours: str
    workers: int
    wanted: str
    rate: str | None = None

    def gbytes_per_s(self, seconds: float) -> float:
        return ROUND_BYTES * self.workers / seconds / 1e9

    @property
    def limit_s(self) -> float:
        """The seconds that the server's link needs in one direction; the other carries as much meanwhile."""
        return 8 * ROUND_BYTES / 2 * self.workers / (CARRIED * (rates.parse(self.rate) or float("inf")))


def row(name: str, case: Case, options: Options) -> Row:
    """Measure a case. Raises LabError where there cannot be a lab, and RuntimeError if a rank fails."""
    found = _turns(case, QUICK_ROUNDS if options.quick else ROUNDS)
    speeds = {side: [case.gbytes_per_s(seconds) for seconds, *_ in turns] for side, turns in found.items()}
    for side, turns in found.items():
        print(f"{name}: {side}: {_described(speeds[side], turns)}")
    best = max(SKETCHES, key=lambda side: statistics.median(speeds[side]))
    ours, theirs = speeds[case.ours], speeds[best]
    limit = case.gbytes_per_s(case.limit_s) if case.rate else 0.0
    ratios = [one / limit for one in ours] if limit else [one / other for one, other in zip(ours, theirs, strict=True)]
    print(f"{name}: ratio {min(ratios):.3g} to {max(ratios):.3g} in {len(ratios)} rounds")
    return Row(
        name=name,
        value=statistics.median(ours),
        unit="GB/s",
        peer=f"{case.rate} links" if limit else f"sketch: {best}",
        peer_value=limit or statistics.median(theirs),
        ratio=statistics.median(ratios),
        wanted=case.wanted,
        better="higher",
    )


def _described(speeds: list[float], turns: Turns) -> str:
    _, server, worker = (statistics.median(column) for column in zip(*turns, strict=True))
    range_ = f"{min(speeds):.2f} to {max(speeds):.2f}"
    return f"{statistics.median(speeds):.2f} GB/s ({range_}), CPU {server:.3f} s the server, {worker:.3f} s a worker"


def _turns(case: Case, rounds: int) -> dict[str, Turns]:
    """By side: seconds, CPU seconds of the server, CPU seconds of a worker, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "turns.json"), Path(folder, "output")
        command = [sys.executable, str(PROGRAM), ",".join([case.ours, *SKETCHES]), str(rounds), str(file)]
        with output.open("wb") as log:
            failed = _in_lab(case, command, log) if case.rate else _here(case, command, log)
        if failed:
            raise RuntimeError(f"a rank of the benchmark failed:\n{output.read_text(errors='replace')}")
        found: dict[str, Turns] = json.loads(file.read_text(encoding="utf-8"))
        return found


def _here(case: Case, command: list[str], log: IO[bytes]) -> int:
    return local.run(command, case.workers + 1, log, AT_MOST_S)


def _in_lab(case: Case, command: list[str], log: IO[bytes]) -> int:
    board = os.memfd_create("volary-bench")
    try:
        with (
            Lab(case.workers + 1, case.rate) as lab,
            lab.launch(
                command,
                procs=1,
                env={"VOLARY_LAB_MEET": f"/proc/self/fd/{board}"},
                outputs=[log] * (case.workers + 1),
                keep=[board],
            ) as ranks,
        ):
            return ranks.follow(lab, Timeline([], lab.topology), AT_MOST_S).status
    finally:
        os.close(board)


CASES = {
    "tcp-1": Case("tcp/encrypted/1000000", 1, "at least 1.05"),
    **{f"tcp-{n}": Case("tcp/encrypted/2500000", n, "at least 1.05") for n in (2, 4)},
    "shm-4": Case("shared/encrypted/1000000", 4, "at least 1.6"),
    "lab-1g": Case("tcp/authenticated/250000", 3, "at least 0.96", "1gbit"),
    "lab-1g-encrypted": Case("tcp/encrypted/250000", 3, "at least 0.90", "1gbit"),
}
ROWS: dict[str, Callable[[Options], Row]] = {name: partial(row, name, case) for name, case in CASES.items()}
