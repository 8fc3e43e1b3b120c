"""How long does it take from a command until its first step is done, and until the prompt is back?

    python benchmarks/start.py [--quick] [--only NAME] [--json FILE]

Each trial is a command of its own. `start-1`, `start-2` and `start-4`: `volary train` of one step of LeNet with as many
workers, from the command to the prompt, against torchrun with a plain script of DistributedDataParallel that does the
same. `start-16`: 16 workers of a softmax on digits, from the command to the end of the first step; against the same
run with workers that are started one by one, and each import torch (OMP_PROC_BIND is set: such processes are not
forked). `start-...-cpu`: CPU seconds of all processes of the same commands, which a busy machine changes little. A full
run makes 7 pairs of each after one that does not count, --quick two in all; both rows of a case are of the same pairs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from _report import Options, Row, alternated, arguments, compared, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

VOLARY = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
SESSION = """\
network: {network}
data: {{source: {source}, batch_size: 64}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.5}}
train: {{steps: 1, device: cpu}}
evaluate: {{every: never}}
strategy: {{workers: {workers}}}
run: {{name: it}}
"""
IMAGES = "{name: synthetic, shape: [1, 28, 28], samples: 1024}"
ONE_BY_ONE = {"OMP_PROC_BIND": "false"}


@dataclass(frozen=True)
class Took:
    """Cost of one command. seconds: to the end of the first step, or of the command. cpu_s: of all processes."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Case:
    """Two commands that take turns."""

    ours: Callable[[], Took]
    theirs: Callable[[], Took]
    peer: str
    wanted: str


def _against_ddp(workers: int) -> Case:
    return Case(
        lambda: _volary("lenet", IMAGES, workers), lambda: _torchrun(workers), "torchrun, plain script", "at most 0.60"
    )


def _one_by_one() -> Took:
    return _volary("softmax", "digits", 16, to_first_step=True, **ONE_BY_ONE)


CASES = {
    "start-1": _against_ddp(1),
    "start-2": _against_ddp(2),
    "start-4": _against_ddp(4),
    "start-16": Case(
        lambda: _volary("softmax", "digits", 16, to_first_step=True), _one_by_one, "started one by one", "at most 0.25"
    ),
}
KINDS: dict[str, Callable[[Took], float]] = {"": lambda took: took.seconds, "-cpu": lambda took: took.cpu_s}


def main() -> None:
    """Run the rows that are asked for."""
    rows = {name + kind: (name, figure) for name in CASES for kind, figure in KINDS.items()}
    options = arguments(__doc__, list(rows))
    report([_row(name, *row, options) for name, row in rows.items() if options.wants(name)], options.json)


def _row(name: str, case_name: str, figure: Callable[[Took], float], options: Options) -> Row:
    case = CASES[case_name]
    found = compared([(figure(ours), figure(theirs)) for ours, theirs in _pairs(case_name, quick=options.quick)])
    print(f"{name}: {found.ratio:.3f} ± {found.spread:.3f}")
    unit = "CPU s" if name.endswith("-cpu") else "s"
    return Row(name, found.ours, unit, case.peer, found.theirs, found.ratio, case.wanted, "lower")


@cache
def _pairs(case_name: str, *, quick: bool) -> list[tuple[Took, Took]]:
    """Costs of a case's commands, in turn."""
    case = CASES[case_name]
    return alternated(case.ours, case.theirs, 2) if quick else alternated(case.ours, case.theirs, 8)[1:]


def _volary(network: str, source: str, workers: int, *, to_first_step: bool = False, **variables: str) -> Took:
    with tempfile.TemporaryDirectory() as folder:
        session = SESSION.format(network=network, source=source, workers=workers)
        Path(folder, "session.yaml").write_text(session, encoding="utf-8")
        began_at = time.time()
        took = _timed(VOLARY, folder, variables)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            first = min(row.ended_at for row in reader.steps())
        return Took(first - began_at if to_first_step else took.seconds, took.cpu_s)


def _torchrun(workers: int) -> Took:
    script = str(Path(__file__).with_name("_start_ddp.py"))
    how = ["--standalone", f"--nproc-per-node={workers}"]
    with tempfile.TemporaryDirectory() as folder:
        return _timed([sys.executable, "-m", "torch.distributed.run", *how, script], folder, {})


def _timed(command: Sequence[str], folder: str, variables: Mapping[str, str]) -> Took:
    """The cost of a command that ends with all that it starts."""
    before, began_at = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=os.environ | variables, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began_at, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    main()
