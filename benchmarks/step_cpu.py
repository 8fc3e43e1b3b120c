"""Where does each CPU second of a step go?

    python benchmarks/step_cpu.py [--quick] [--only NAME] [--json FILE] [--training NAME]

nanoGPT's character model (10.7 million parameters, 4 sequences of 128 a rank), or another training of exchange.py
(--training), on 4 hosts of the lab with links of 1 Gbit/s: steps as they are, as factors, with onebit and with
powersgd, of DistributedDataParallel and its PowerSGD hook, and without exchange, each in a stretch of time of its own,
in one lab. Linux's `perf` takes samples of all processors meanwhile, which needs root; where it is not there the rows
are skipped. Above the table stands, for each stretch, what its threads spent, in ms a step over all ranks, by kind of
work.

A row is the CPU seconds of a step, over all ranks, beyond those of a step without exchange, both without the matrix
products of the training thread: these are the same work in every stretch, and what the processor takes for them
changes from one minute to the next by more than what is asked for here. `dense`, `factors` and `onebit` are compared
with DistributedDataParallel, `powersgd` with its PowerSGD hook. A stretch is 20 steps, --quick: 8. With --only there
are only the stretches that the row is made of.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import _exchange_cases as cases
import _in_lab
from _exchange_cases import Case
from _perf import ALONE, PRODUCTS, STRETCHES, TRAINING, by_thread, recorded
from _report import Row, arguments, report
from volary.errors import DataError
from volary.lab import LabError

CODECS = {"dense": "none", "factors": "factors", "onebit": "onebit", "powersgd": "powersgd"}
DDP, HOOK = "DDP", "PowerSGD"
AGAINST = {"dense": DDP, "factors": DDP, "onebit": DDP, "powersgd": HOOK}
LEAST_MS = 1.0  # that is printed


@dataclass(frozen=True)
class Stretch:
    """The cost of a step: its seconds, and CPU seconds over all ranks by thread and kind of work."""

    step_s: float
    cpu_s: Mapping[tuple[str, str], float]

    @property
    def beside_products_s(self) -> float:
        """CPU seconds without the training thread's matrix products."""
        return sum(self.cpu_s.values()) - self.cpu_s.get((TRAINING, PRODUCTS), 0.0)


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CODECS), _training_option)
    names = [name for name in CODECS if options.wants(name)]
    try:
        case = Case(**cases.NETWORKS[options.more.training], rate="1gbit")
        found = _measured(case, names, 8 if options.quick else 20)
    except (LabError, DataError) as reason:
        print(f"all rows: skipped: {reason}")
        return
    for name, stretch in found.items():
        _print(name, stretch)
    report([_row(name, found) for name in names], options.json)


def _training_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--training", choices=list(cases.NETWORKS), default="gpt", help="what is trained")


def _measured(case: Case, names: Sequence[str], steps: int) -> dict[str, Stretch]:
    peers = list(dict.fromkeys(AGAINST[name] for name in names))
    wanted = json.dumps({"codecs": {name: CODECS[name] for name in names}, "peers": peers, "steps": steps})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "perf.data")
        with recorded(file):
            directory = _in_lab.run(case.session(folder), case.rate, "_step_cpu_ranks.py", wanted)
        times: dict[str, tuple[float, float]] = json.loads((directory.results / STRETCHES).read_text(encoding="utf-8"))
        return {name: _of_a_step(file, began_s, ended_s, steps) for name, (began_s, ended_s) in times.items()}


def _of_a_step(file: Path, began_s: float, ended_s: float, steps: int) -> Stretch:
    cpu_s = by_thread(file, began_s, ended_s)
    return Stretch((ended_s - began_s) / steps, {key: seconds / steps for key, seconds in cpu_s.items()})


def _row(name: str, found: Mapping[str, Stretch]) -> Row:
    peer = AGAINST[name]
    ours_s, theirs_s = (found[one].beside_products_s - found[ALONE].beside_products_s for one in (name, peer))
    unit, wanted = "CPU s per step, beyond compute", "as low as can be"
    return Row(name, ours_s, unit, peer, theirs_s, ours_s / theirs_s, wanted, "lower")


def _print(name: str, stretch: Stretch) -> None:
    total_s = sum(stretch.cpu_s.values())
    print(f"{name}: {stretch.step_s:.3f} s a step; {total_s:.3f} CPU s over all ranks")
    kinds: dict[str, dict[str, float]] = defaultdict(dict)
    for (thread, kind), seconds in stretch.cpu_s.items():
        kinds[thread][kind] = 1000 * seconds
    for thread, each in sorted(kinds.items(), key=lambda one: -sum(one[1].values())):
        if sum(each.values()) >= LEAST_MS:
            most = sorted(each.items(), key=lambda one: -one[1])
            said = ", ".join(f"{kind} {ms:.0f}" for kind, ms in most if ms >= LEAST_MS)
            print(f"  {thread:16} {sum(each.values()):6.0f} ms: {said}")


if __name__ == "__main__":
    main()
