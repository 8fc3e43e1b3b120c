"""How long is a step of many workers on few cores, beside gloo's all-reduce?

    python benchmarks/many.py [--quick] [--only NAME] [--json FILE]

`volary train` of a softmax on the bundled digits, 300 steps with a sample a worker, with 2, 4, 8 and 16 workers on
this machine, so that a step is hardly more than the workers' waiting for each other. `many-N`: in shared memory, the
default of one machine; `many-server-N`: over a parameter server. The peer is the same loop with `route: torch`, gloo's
all-reduce. A figure is the mean of the steps after the first 50, in milliseconds; each run is a command of its own, and
the sides take turns. A full run makes 5 pairs of each row, --quick one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from _report import Options, Row, alternated, arguments, compared, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

STEPS, WARM_UP = 300, 50
GLOO = {"name": "allreduce", "route": "torch"}


@dataclass(frozen=True)
class Case:
    """One row: how many workers exchange how, and the bound of ours / gloo's."""

    workers: int
    exchange: Mapping[str, Any]
    wanted: str


SHARED, SERVER = {"name": "allreduce"}, {"name": "server"}
CASES = {
    "many-2": Case(2, SHARED, "at most 0.50"),
    "many-4": Case(4, SHARED, "at most 0.35"),
    "many-8": Case(8, SHARED, "at most 0.35"),
    "many-16": Case(16, SHARED, "at most 0.35"),
    "many-server-2": Case(2, SERVER, "at most 1.80"),
    "many-server-4": Case(4, SERVER, "at most 0.60"),
    "many-server-8": Case(8, SERVER, "at most 0.45"),
    "many-server-16": Case(16, SERVER, "at most 0.35"),
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    pairs = 1 if options.quick else 5
    ours, theirs = (lambda exchange=one: _step_ms(case.workers, exchange) for one in (case.exchange, GLOO))
    found = compared(alternated(ours, theirs, pairs))
    print(f"{name}: {found.ratio:.3f} ± {found.spread:.3f}")
    return Row(name, found.ours, "ms per step", "gloo", found.theirs, found.ratio, case.wanted, "lower")


def _step_ms(workers: int, exchange: Mapping[str, Any]) -> float:
    settings = {
        "network": "softmax",
        "data": {"source": "digits", "batch_size": workers},
        "optimizer": {"name": "sgd", "lr": 0.01},
        "train": {"steps": STEPS, "device": "cpu", "compare_replicas": "never"},
        "evaluate": {"every": "never"},
        "checkpoint": {"every": "never"},
        "strategy": {"workers": workers, "exchange": exchange},
        "run": {"name": "it"},
    }
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "session.yaml").write_bytes(msgspec.yaml.encode(settings))
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            ended = [row.ended_at for row in reader.steps(after=WARM_UP, rank=0)]
    return 1000 * (max(ended) - min(ended)) / (len(ended) - 1)


if __name__ == "__main__":
    main()
