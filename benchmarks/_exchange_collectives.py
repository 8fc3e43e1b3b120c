"""The rows of exchange.py about single collectives: ours beside torch's own over gloo, in alternation.

Ours and the peer run in the same processes (_collective_ranks.py), on memory of their own, of float32; both results are
checked once. limit: bytes that have to pass the slowest link / (0.957 x its rate).

two-level: 100 MB all-reduce on 2 hosts with 2 processes each, 1 Gbit/s. shm-2, shm-4: 100 MB all-reduce of processes on
one machine; ours adds in shared memory in place, where an exchange's gradients lie. shm-...-latency: the same, 1 KB.
broadcast-1g, reduce-scatter-1g, all-gather-1g: 100 MB on 4 hosts, 1 Gbit/s.
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
from typing import IO, Literal

from _report import Options, Row
from volary.bench import local
from volary.lab import Lab
from volary.lab.network import rates
from volary.lab.timeline import Timeline

PROGRAM = Path(__file__).parent / "_collective_ranks.py"
CARRIED = 0.957  # of a link's rate is TCP payload, with frames of 1500 bytes
LARGE_BYTES, SMALL_BYTES = 100_000_000, 1024
ROUNDS, QUICK_ROUNDS = 7, 3
AT_MOST_S = 300.0

Ratio = Literal["ours / theirs", "theirs / ours", "ours / limit", "limit / ours"]


@dataclass(frozen=True)
class Case:
    """The measurement of a row. hosts: of a lab with links of `rate`; 0: this machine without one. calls: of one turn.

    slowest: the share of the bytes that has to pass the slowest link, for a ratio to the limit.
    """

    collective: str
    way: str
    hosts: int
    procs: int
    ratio: Ratio
    wanted: str
    rate: str | None = None
    size_bytes: int = LARGE_BYTES
    calls: int = 1
    slowest: float = 1.0

    @property
    def limit_s(self) -> float:
        """The seconds that the slowest link needs for the bytes that must pass it; 0 without one."""
        bits_per_s = rates.parse(self.rate)
        return 0.0 if bits_per_s is None else 8 * self.slowest * self.size_bytes / (CARRIED * bits_per_s)

    def ratio_of(self, ours: float, theirs: float) -> float:
        match self.ratio:
            case "ours / theirs":
                return ours / theirs
            case "theirs / ours":
                return theirs / ours
            case "ours / limit":
                return ours / self.limit_s
            case "limit / ours":
                return self.limit_s / ours


def row(name: str, case: Case, options: Options) -> Row:
    """Measure a case. Raises LabError where there cannot be a lab, and RuntimeError if a rank fails."""
    pairs = _pairs(case, QUICK_ROUNDS if options.quick else ROUNDS)
    found = sorted(case.ratio_of(*pair) for pair in pairs)
    ours, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{name}: {case.ratio} {found[0]:.3g} to {found[-1]:.3g} in {len(found)} rounds")
    if "limit" in case.ratio:
        print(f"{name}: limit {case.limit_s * 1000:.4g} ms; of it, the peer {case.ratio_of(theirs, ours):.3g}")
    return Row(
        name=name,
        value=ours * 1000,
        unit="ms",
        peer=f"torch.distributed.{case.collective}, gloo",
        peer_value=theirs * 1000,
        ratio=statistics.median(found),
        wanted=case.wanted,
        better="lower" if case.ratio.startswith("ours") else "higher",
    )


def _pairs(case: Case, rounds: int) -> list[tuple[float, float]]:
    """Seconds of ours and theirs, round by round."""
    with tempfile.TemporaryDirectory() as folder:
        file, output = Path(folder, "pairs.json"), Path(folder, "output")
        numbers = map(str, (case.size_bytes, rounds, case.calls))
        command = [sys.executable, str(PROGRAM), case.collective, case.way, *numbers, str(file)]
        with output.open("wb") as log:
            failed = _in_lab(case, command, log) if case.hosts else local.run(command, case.procs, log, AT_MOST_S)
        if failed:
            raise RuntimeError(f"a rank of the benchmark failed:\n{output.read_text(errors='replace')}")
        return [(ours, theirs) for ours, theirs in json.loads(file.read_text(encoding="utf-8"))]


def _in_lab(case: Case, command: list[str], log: IO[bytes]) -> int:
    board = os.memfd_create("volary-bench")
    try:
        with (
            Lab(case.hosts, case.rate) as lab,
            lab.launch(
                command,
                procs=case.procs,
                env={"VOLARY_LAB_MEET": f"/proc/self/fd/{board}"},
                outputs=[log] * case.hosts * case.procs,
                keep=[board],
            ) as ranks,
        ):
            return ranks.follow(lab, Timeline([], lab.topology), AT_MOST_S).status
    finally:
        os.close(board)


_SHARED = partial(Case, "all_reduce", "shared", 0)
CASES = {
    "two-level": Case("all_reduce", "two_level", 2, 2, "theirs / ours", "at least 1.42", "1gbit"),
    "shm-2": _SHARED(2, "theirs / ours", "at least 6"),
    "shm-4": _SHARED(4, "theirs / ours", "at least 6"),
    "shm-2-latency": _SHARED(2, "ours / theirs", "at most 0.1", size_bytes=SMALL_BYTES, calls=200),
    "shm-4-latency": _SHARED(4, "ours / theirs", "at most 0.2", size_bytes=SMALL_BYTES, calls=200),
    "broadcast-1g": Case("broadcast", "chain", 4, 1, "ours / limit", "at most 1.15", "1gbit"),
    "reduce-scatter-1g": Case("reduce_scatter", "ring", 4, 1, "limit / ours", "at least 0.93", "1gbit", slowest=3 / 4),
    "all-gather-1g": Case("all_gather", "ring", 4, 1, "limit / ours", "at least 0.93", "1gbit", slowest=3 / 4),
}
ROWS: dict[str, Callable[[Options], Row]] = {name: partial(row, name, case) for name, case in CASES.items()}
