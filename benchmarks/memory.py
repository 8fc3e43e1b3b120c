"""How much memory does a worker need at most, beside one of DistributedDataParallel with gradient_as_bucket_view?

    python benchmarks/memory.py [--quick] [--only NAME] [--json FILE]

Two workers on this machine train AlexNet-like (34 million parameters, 137 MB), 16 samples each, SGD with momentum.
Every command is one of its own: ours `volary train`, whose workers are started one by one (OMP_PROC_BIND is set), so
that both sides import torch alike; the peer is torchrun with a plain script. `memory-2-hosts`: route torch, by which
the workers of two hosts sum; `memory-one-machine`: in shared memory; `memory-onebit`: codec onebit, between hosts.

The figure is the largest private memory that a worker had until the end of its last step, with its part of what it
shares (PSS without files), above a process that has imported torch; looked at every 10 ms. What writing the last
checkpoint took on top is printed, and no part of the row. --quick: 6 steps instead of 20, and one command a side
instead of three, of which the median counts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from _in_lab import HERE
from _report import Options, Row, arguments, report
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

LOOK_S = 0.01
SHARE, CLASSES = 16, 100
SESSION = """\
network: {networks}:alexnet_like
data: {{source: {{name: synthetic, shape: [3, 32, 32], classes: {classes}, samples: {samples}}}, batch_size: {samples}}}
optimizer: {{name: sgd, lr: 0.01, momentum: 0.9}}
train: {{steps: {steps}, device: cpu}}
evaluate: {{every: never}}
checkpoint: {{every: never}}
strategy: {{workers: 2, codec: {codec}, exchange: {{route: {route}}}}}
run: {{name: it}}
"""
ONE_BY_ONE = {"OMP_PROC_BIND": "false", "OMP_NUM_THREADS": "1"}
IMPORTED = "import torch, sys; sys.stdin.read()"


@dataclass(frozen=True)
class Case:
    """How ours sums, and what is wanted of it."""

    route: str
    codec: str
    wanted: str


CASES = {
    "memory-2-hosts": Case("torch", "none", "at most 1.00"),
    "memory-one-machine": Case("shared", "none", "at most 1.00"),
    "memory-onebit": Case("torch", "onebit", "at most 1.35"),
}


@dataclass(frozen=True)
class Look:
    """What one worker had at one time (seconds since 1970), in bytes."""

    at: float
    held_bytes: int


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    steps, trials = (6, 1) if options.quick else (20, 3)
    ours = statistics.median(_ours(case, steps) for _ in range(trials))
    theirs = _theirs(steps, trials)
    return Row(
        name, ours / 2**20, "MiB", "DDP, gradients as bucket views", theirs / 2**20, ours / theirs, case.wanted, "lower"
    )


def _ours(case: Case, steps: int) -> float:
    """The most that a worker of ours had above torch, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        session = SESSION.format(
            networks=HERE / "_networks.py", classes=CLASSES, samples=2 * SHARE, steps=steps, **_ways(case)
        )
        Path(folder, "session.yaml").write_text(session, encoding="utf-8")
        command = [sys.executable, "-m", "volary", "train", "session.yaml", "--quiet"]
        workers = _watched(command, "volary.worker", folder)
        with RunReader(RunDirectory(Path(folder, "runs", "it"))) as reader:
            trained_at = min(row.ended_at for row in reader.steps(after=steps - 1))
    most = max(look.held_bytes for looks in workers for look in looks if look.at < trained_at)
    saving = max(look.held_bytes for looks in workers for look in looks)
    print(f"  {case.route}, {case.codec}: {_mib(most)}; at the last checkpoint {_mib(saving)}")
    return most - _torch_bytes()


def _ways(case: Case) -> Mapping[str, str]:
    return {"codec": case.codec, "route": case.route}


@cache
def _theirs(steps: int, trials: int) -> float:
    """The most that a worker of the peer had above torch, in bytes."""
    script = str(HERE / "_memory_ddp.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script]
    found = []
    for _ in range(trials):
        workers = _watched([*command, str(steps), str(SHARE), str(CLASSES)], f"-u {script}", ".")
        found.append(max(look.held_bytes for looks in workers for look in looks))
        print(f"  DDP: {_mib(found[-1])}")
    return statistics.median(found) - _torch_bytes()


@cache
def _torch_bytes() -> int:
    """What a process holds that has imported torch, and nothing else."""
    with subprocess.Popen([sys.executable, "-c", IMPORTED], stdin=subprocess.PIPE) as process:
        held, before = 1, 0
        while held != before:  # until it only waits
            time.sleep(0.5)
            before, held = held, _held_bytes(process.pid)
        assert process.stdin is not None
        process.stdin.close()
    print(f"  torch: {_mib(held)}")
    return held


def _watched(command: Sequence[str], worker: str, folder: str) -> list[list[Look]]:
    """Run a command; what each of its processes had that has `worker` in its command line."""
    looks: dict[int, list[Look]] = {}
    with subprocess.Popen(command, cwd=folder, env=os.environ | ONE_BY_ONE, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            for child in _children(process.pid, lambda line: worker in line):
                if held := _held_bytes(child):
                    looks.setdefault(child, []).append(Look(time.time(), held))
            time.sleep(LOOK_S)
    if process.returncode or not looks:
        raise SystemExit(f"{' '.join(command)} ended with status {process.returncode}")
    return list(looks.values())


def _children(process: int, wanted: Callable[[str], bool]) -> list[int]:
    found = []
    for child in psutil.Process(process).children(recursive=True):
        try:
            if wanted(" ".join(child.cmdline())):
                found.append(child.pid)
        except psutil.Error:  # it has ended meanwhile
            continue
    return found


def _held_bytes(process: int) -> int:
    """Its private memory and its part of what it shares, but for files; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    facts = {name.rstrip(":"): int(rest[0]) for name, *rest in (line.split() for line in lines[1:])}
    return 1024 * (facts["Pss_Anon"] + facts["Pss_Shmem"])


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:.0f} MiB"


if __name__ == "__main__":
    main()
